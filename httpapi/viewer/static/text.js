// Shows what others wrote. It may be anything: it becomes text nodes and a few elements made here, never
// HTML; characters that hide or turn text are named.

import { button, h } from './h.js'
import { number, t } from './language.js'

const FOLD_AT = 1200 // characters; a longer text is folded
const FOLD_LINES = 16 // and one of more lines

// Unseen: control characters, what turns the direction of text, what has no width. Joiners stay, which
// emoji and several scripts need.
const unseen = new RegExp('[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f' +
  '\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]', 'gu')

// A little Markdown: fenced code, code, bold; and addresses of web pages.
const fence = /```[^\n`]*\n([\s\S]*?)(?:\n?```\n?|$)/
const others = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|(https?:\/\/[^\s<>"'`，。；、（）《》】]+)/
const marks = new RegExp(`${fence.source}|${others.source}`, 'g')

// pieces maps what a pattern finds in text, and what is between.
function pieces(text, pattern, found, between) {
  const nodes = []
  let done = 0
  for (const m of text.matchAll(pattern)) {
    nodes.push(between(text.slice(done, m.index)), found(m))
    done = m.index + m[0].length
  }
  nodes.push(between(text.slice(done)))
  return nodes.flat().filter((node) => node !== '')
}

const codeOf = (c) => 'U+' + c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')

function marked(text, query) {
  if (!query) return text
  const wanted = new RegExp(query.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'gi')
  return pieces(text, wanted, ([part]) => h('mark', part), (rest) => rest)
}

// plain is text as nodes, with unseen characters named and query marked.
export const plain = (text, query) =>
  pieces(text, unseen, ([c]) => h('span.unseen', { title: t('text.unseen') }, codeOf(c)), (rest) => marked(rest, query))

// clean is text without unseen characters, where only text can be.
export const clean = (text) => text.replace(unseen, '')

// The characters as people see them.
const characters = new Intl.Segmenter()

// cut shortens a text, not inside a character.
export function cut(text, length, end = '…') {
  if (text.length <= length) return text
  return text.slice(0, characters.segment(text.slice(0, length + 64)).containing(length).index || length) + end
}

// line is the beginning of a text, for one line.
export const line = (text, length = 120) => plain(cut(text.replace(/\s+/g, ' ').trim(), length))

// rich is plain with light Markdown.
export const rich = (text, query) => pieces(text, marks, (m) => markdown(m, query), (rest) => plain(rest, query))

function markdown([all, fenced, code, bold, address], query) {
  if (fenced !== undefined) return h('pre', h('code', plain(fenced, query)))
  if (code) return h('code', plain(code, query))
  if (bold) return h('strong', plain(bold, query))
  if (!URL.canParse(address)) return plain(all, query)
  return h('a', { href: address, rel: 'noopener noreferrer', target: '_blank', tabindex: '-1' }, plain(address, query))
}

// body is a message's text, folded if it is long.
export function body(text, query) {
  const element = h('div.text', { dir: 'auto' })
  const lines = text.split('\n', FOLD_LINES + 1)
  const short = cut(lines.length > FOLD_LINES ? lines.slice(0, FOLD_LINES).join('\n') : text, FOLD_AT, '')
  const fill = (open) => {
    const word = open ? t('text.less') : t('text.all', { n: number(text.length) })
    const toggle = button('show-all', () => fill(!open).focus(), { class: 'link', 'aria-expanded': String(open) }, word)
    element.replaceChildren(...rich(open ? text : short, query), open ? '' : '…', h('span.more', toggle))
    return toggle
  }
  if (short === text) element.append(...rich(text, query))
  else fill(false)
  return element
}
