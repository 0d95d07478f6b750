// Shows what others wrote. It may be anything: it becomes text nodes and a few
// elements made here, never HTML; characters that hide or turn text are named.

import { h } from './h.js'
import { t } from './i18n.js'
import { number } from './format.js'

const FOLD_AT = 1200 // characters; a longer text is folded
const FOLD_LINES = 16 // and one of more lines

// Unseen: control characters, what turns the direction of text, what has no width.
// Joiners stay, which emoji and several scripts need.
const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu

// A little Markdown: fenced code, code, bold; and addresses of web pages.
const marks = /```[^\n`]*\n([\s\S]*?)(?:\n?```\n?|$)|`([^`\n]+)`|\*\*([^*\n]+)\*\*|(https?:\/\/[^\s<>"'`，。；、（）《》】]+)/g

// plain is text as nodes, with unseen characters named and query marked.
export function plain(text, query) {
  return pieces(text, unseen, (c) => h('span', { class: 'unseen', title: t('text.unseen') }, codeOf(c)), (rest) => marked(rest, query))
}

// clean is text without unseen characters, where only text can stand.
export const clean = (text) => text.replace(unseen, '')

// line is the beginning of a text, for one line.
export function line(text, length = 120) {
  return plain(cut(text.replace(/\s+/g, ' ').trim(), length))
}

// rich is plain with light Markdown.
export function rich(text, query) {
  const nodes = []
  let done = 0
  for (const m of text.matchAll(marks)) {
    nodes.push(plain(text.slice(done, m.index), query), markdown(m, query))
    done = m.index + m[0].length
  }
  nodes.push(plain(text.slice(done), query))
  return nodes.flat()
}

function markdown([all, fenced, code, bold, address], query) {
  if (fenced !== undefined) return h('pre', null, h('code', null, plain(fenced, query)))
  if (code) return h('code', null, plain(code, query))
  if (bold) return h('strong', null, plain(bold, query))
  return link(address) ? h('a', { href: address, rel: 'noopener noreferrer', target: '_blank', tabindex: '-1' }, plain(address, query)) : plain(all, query)
}

// link reports whether address is one of a web page that can be followed.
function link(address) {
  try {
    return ['http:', 'https:'].includes(new URL(address).protocol)
  } catch {
    return false
  }
}

// body is a message's text, folded if it is long.
export function body(text, query) {
  const element = h('div', { class: 'text', dir: 'auto' })
  const short = folded(text)
  if (short === text) {
    element.append(...rich(text, query))
    return element
  }
  const button = h('button', { type: 'button', class: 'link', tabindex: '-1', 'aria-expanded': 'false', 'data-testid': 'show-all' })
  const fill = (open) => {
    button.textContent = open ? t('text.less') : t('text.all', { n: number(text.length) })
    button.setAttribute('aria-expanded', String(open))
    element.replaceChildren(...rich(open ? text : short, query), open ? '' : '…', h('span', { class: 'more' }, button))
  }
  button.addEventListener('click', () => fill(button.getAttribute('aria-expanded') === 'false'))
  fill(false)
  return element
}

function folded(text) {
  let end = -1
  for (let lines = 0; lines < FOLD_LINES; lines++) {
    end = text.indexOf('\n', end + 1)
    if (end < 0 || end > FOLD_AT) break
  }
  return end < 0 || end > FOLD_AT ? cut(text, FOLD_AT, '') : text.slice(0, end)
}

// The characters as people see them.
const characters = new Intl.Segmenter()

// cut shortens a text, not inside a character.
export function cut(text, length, end = '…') {
  if (text.length <= length) return text
  return text.slice(0, characters.segment(text.slice(0, length + 64)).containing(length).index || length) + end
}

const codeOf = (c) => 'U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')

function marked(text, query) {
  if (!query) return text ? [text] : []
  const found = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'gi')
  return pieces(text, found, (part) => h('mark', null, part), (rest) => (rest ? [rest] : []))
}

// pieces maps what a pattern finds in text, and what lies between.
function pieces(text, pattern, found, between) {
  const nodes = []
  let done = 0
  for (const m of text.matchAll(pattern)) {
    nodes.push(...between(text.slice(done, m.index)), found(m[0]))
    done = m.index + m[0].length
  }
  nodes.push(...between(text.slice(done)))
  return nodes
}
