// The page's words in the viewer's language.

import { en } from './words-en.js'
import { zh } from './words-zh.js'
import { reasons } from './reasons.js'
import { remembered, remember } from './memory.js'

const words = { en, zh }

let chosen = remembered('language') ?? (navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en')
if (!words[chosen]) chosen = 'en'
document.documentElement.lang = chosen

export const language = () => chosen

export function setLanguage(name) {
  chosen = name
  remember('language', name)
  document.documentElement.lang = name
}

// t is the text of key, with {name} replaced from values.
export function t(key, values = {}) {
  const text = words[chosen][key] ?? key
  return text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all)
}

// filled is the text of key with nodes in the place of the {name}s.
export function filled(key, nodes) {
  return (words[chosen][key] ?? key).split(/\{(\w+)\}/).map((part, i) => (i % 2 ? nodes[part] : part))
}

// explain says in words what a word of the API means; '' if there is no more to say.
export const explain = (word) => reasons[word]?.[chosen].means ?? words[chosen]['means.' + word] ?? ''

// advise says what to do about a reason of the API, or about a state; '' if nothing is known.
export const advise = (word) => reasons[word]?.[chosen].do ?? words[chosen]['do.' + word] ?? ''
