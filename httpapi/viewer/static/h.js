// Builds the page's nodes. Everything on the page is made here, and what others
// wrote goes in as text only: there is no way to give h a piece of HTML.

const SVG = 'http://www.w3.org/2000/svg'

// h makes an element: h('button', { class: 'chip', onclick: go }, 'text', node).
// Attributes that are null, undefined or false are left out, as are such children.
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children)
}

// s makes an element of a picture.
export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children)
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else element.setAttribute(name, value === true ? '' : value)
  }
  element.append(...list(children))
  return element
}

function list(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false)
}

// show puts children in the place of what the element holds.
export function show(element, ...children) {
  element.replaceChildren(...list(children))
  return element
}

const icons = {
  groups: 'M4 5h11a2 2 0 0 1 2 2v5a2 2 0 0 1-2 2H9l-4 3v-3H4a2 2 0 0 1-2-2V7a2 2 0 0 1 2-2Z M19 9h1a2 2 0 0 1 2 2v5a2 2 0 0 1-2 2h-1v3l-4-3h-2',
  agents: 'M6 8h12a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2v-8a2 2 0 0 1 2-2Z M12 8V4 M9 13v2 M15 13v2 M2 13v3 M22 13v3',
  mailbox: 'M3 6h18v12H3Z M3 7l9 7 9-7',
  system: 'M3 12h4l3-7 4 14 3-7h4',
  theme: 'M12 3a9 9 0 1 0 0 18Z M12 3a9 9 0 0 1 0 18',
  language: 'M3 5h9 M7.5 3v2 M4 13c4-1 6-4 7-8 M5 8c1 3 3 4.5 6 5.5 M12 21l4.5-10L21 21 M13.5 18h6',
  help: 'M9 9a3 3 0 1 1 4 2.8c-.7.4-1 1-1 1.7V14 M12 17.5v.1',
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14Z M16 16l5 5',
  back: 'M15 5l-7 7 7 7',
  close: 'M6 6l12 12 M18 6L6 18',
  down: 'M12 5v14 M6 13l6 6 6-6',
  thread: 'M5 4v9a3 3 0 0 0 3 3h11 M15 12l4 4-4 4',
  link: 'M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-6-6l-1.5 1.5 M14 10a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 6 6l1.5-1.5',
  copy: 'M9 9h11v11H9Z M5 15H4V4h11v1',
  sliders: 'M4 7h9 M17 7h3 M4 17h3 M11 17h9 M15 4.5v5 M9 14.5v5',
  told: 'M4 5h16v11H9l-4 3v-3H4Z M8 9h8 M8 12h5',
  out: 'M10 4H5v16h5 M14 8l4 4-4 4 M18 12H9',
}

// icon is a small line drawing; it says nothing to a screen reader.
export function icon(name) {
  return s('svg', { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true', focusable: 'false' }, s('path', { d: icons[name] }))
}
