// Builds the page's nodes. What others wrote goes in as text only: h takes no HTML.

// h makes an element: h('button.kind', { onclick: go, data: { kind } }, 'text', node). The attributes may be left
// out; those that are null, undefined or false are not set, and such children are not added.
export const h = (tag, ...rest) => make('http://www.w3.org/1999/xhtml', tag, rest)

// s makes an element of a picture.
export const s = (tag, ...rest) => make('http://www.w3.org/2000/svg', tag, rest)

const given = (value) => value !== null && value !== undefined && value !== false
const isPlain = (value) => value?.constructor === Object

function make(space, selector, rest) {
  const { data = {}, class: more, ...attributes } = isPlain(rest[0]) ? rest.shift() : {}
  const [tag, ...names] = selector.split('.')
  const element = document.createElementNS(space, tag)
  if (more) names.push(more)
  if (names.length) element.setAttribute('class', names.join(' '))
  for (const [name, value] of Object.entries(data)) if (given(value)) element.dataset[name] = value
  for (const [name, value] of Object.entries(attributes)) {
    if (!given(value)) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else element.setAttribute(name, value === true ? '' : value)
  }
  element.append(...rest.flat(Infinity).filter(given))
  return element
}

// show replaces the children of an element.
export function show(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(given))
  return element
}

// order makes rows the children of list. Those in place are not touched, and the focus stays.
export function order(list, rows) {
  const focused = document.activeElement
  const kept = new Set(rows)
  for (const child of [...list.children]) if (!kept.has(child)) child.remove()
  let at = list.firstChild
  for (const row of rows) {
    if (row === at) at = at.nextSibling
    else list.insertBefore(row, at)
  }
  if (focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true })
}

// keepFocus runs draw, which replaces what root holds, and puts the focus back to the same place in root.
export function keepFocus(root, draw) {
  const focused = document.activeElement
  const path = []
  if (focused !== root && root.contains(focused)) {
    for (let e = focused; e !== root; e = e.parentNode) path.unshift([...e.parentNode.children].indexOf(e))
  }
  draw()
  const place = path.reduce((e, i) => e?.children[i], root)
  if (path.length && place?.tagName === focused.tagName) place.focus({ preventScroll: true })
}

// selecting reports whether text in root is selected, which drawing again would undo.
export const selecting = (root) => !getSelection().isCollapsed && root.contains(getSelection().anchorNode)

// button makes a button with a test id, which act is called for.
export const button = (id, act, attributes, ...children) =>
  h('button', { type: 'button', data: { testid: id }, onclick: act, ...attributes }, ...children)

// iconButton is a button that is a picture.
export const iconButton = (id, act, picture, label, attributes) =>
  button(id, act, { class: 'icon-button', title: label, 'aria-label': label, ...attributes }, picture)

// mark is a word in the colour of a state.
export const mark = (state, text, data, title) => h('span.state', { title, data: { state, ...data } }, text)

// later returns a function that has act called ms after the first of several calls.
export function later(ms, act) {
  let timer
  const done = () => {
    timer = undefined
    act()
  }
  return () => (timer ??= setTimeout(done, ms))
}

const icons = {
  groups: 'M4 5h11a2 2 0 0 1 2 2v5a2 2 0 0 1-2 2H9l-4 3v-3H4a2 2 0 0 1-2-2V7a2 2 0 0 1 2-2Z ' +
    'M19 9h1a2 2 0 0 1 2 2v5a2 2 0 0 1-2 2h-1v3l-4-3h-2',
  agents: 'M6 8h12a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2v-8a2 2 0 0 1 2-2Z M12 8V4 M9 13v2 M15 13v2 ' +
    'M2 13v3 M22 13v3',
  mailbox: 'M3 6h18v12H3Z M3 7l9 7 9-7', system: 'M3 12h4l3-7 4 14 3-7h4',
  theme: 'M12 3a9 9 0 1 0 0 18Z M12 3a9 9 0 0 1 0 18', search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14Z M16 16l5 5',
  back: 'M15 5l-7 7 7 7', close: 'M6 6l12 12 M18 6L6 18', down: 'M12 5v14 M6 13l6 6 6-6',
  thread: 'M5 4v9a3 3 0 0 0 3 3h11 M15 12l4 4-4 4', sliders: 'M4 7h9 M17 7h3 M4 17h3 M11 17h9 M15 4.5v5 M9 14.5v5',
  notice: 'M4 5h16v11H9l-4 3v-3H4Z M8 9h8 M8 12h5',
}

// icon is a small line drawing that a screen reader passes over.
export const icon = (name) =>
  s('svg.icon', { viewBox: '0 0 24 24', 'aria-hidden': 'true' }, s('path', { d: icons[name] }))
