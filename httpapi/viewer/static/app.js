// Puts the page together.

import * as api from './api.js'
import { h, icon, iconButton, keepFocus, later, show } from './h.js'
import { language, remember, setLanguage, t } from './language.js'
import { hash, route, sections } from './route.js'
import { watch } from './live.js'
import { GroupList } from './groups.js'
import { Talk } from './talk.js'
import { Agents, Mailbox, System } from './panels.js'
import { keys, showKeys } from './keys.js'
import { FROM, agentAvatar, botName, chatName, learn, nameText, onNames } from './names.js'
import { clean } from './text.js'
import { empty, fault, say } from './notice.js'

const STATUS_EVERY = 15_000 // ms

const the = (id) => document.getElementById(id)
const wide = matchMedia('(min-width: 721px)') // as frame.css has it: list and conversation are side by side
const panels = {
  agents: new Agents(the('agents')), mailbox: new Mailbox(the('mailbox')), system: new System(the('system')),
}
const groups = new GroupList(the('group-nav'), go)
const talk = new Talk({
  head: the('talk-head'), steering: the('talk-steer'), bar: the('talk-find'), scroller: the('talk-scroll'),
  top: the('talk-top'), list: the('talk-list'), newest: the('talk-newest'), aside: the('details'),
})
let status
let connection = 'connecting'

// place is what the address says. Where it names no group, a wide screen shows the one that was open last, else
// the newest.
function place() {
  const at = route()
  const group = talk.group ?? groups.groups[0]
  const chosen = at.section !== 'groups' || at.chat || !wide.matches || !group
  return chosen ? at : { ...at, channel: group.channel, chat: group.chat_id }
}

// go shows the place.
function go() {
  const { section, channel, chat, message } = place()
  const shown = sections.find((name) => !the(name).hidden)
  for (const name of sections) the(name).hidden = name !== section
  if (section === 'groups') openGroup(channel, chat, message)
  else if (section !== shown) panels[section].show()
  draw()
}

function openGroup(channel, chat, message) {
  const group = groups.get(channel, chat)
  document.body.dataset.pane = message ? 'details' : chat ? 'talk' : 'list'
  the('talk').hidden = !chat
  the('no-talk').hidden = Boolean(chat)
  groups.opened(group)
  if (!chat) return talk.hideDetails()
  const { conversation } = talk
  if (conversation.channel !== channel || conversation.chat !== chat) talk.open(group ?? { channel, chat_id: chat })
  else if (group) talk.name(group)
  if (!message) talk.hideDetails()
  else if (talk.aside.hidden || talk.selected !== message) talk.showDetails(message)
}

// draw shows what is around the sections: the rail, the title, what to do where no conversation is open.
function draw() {
  const { section, channel, chat } = place()
  const { agent_name: agent } = status?.identity ?? {}
  const state = connection
  const whose = agent && t('whose', { name: nameText(agent) })
  const item = (name) => h('a', {
    href: '#/' + name, 'aria-current': name === section && 'page',
    data: { testid: 'nav-' + name, fault: name === 'system' && status?.ready === false ? '' : null },
  }, icon(name), h('span', t(name)))
  const tool = (name, act, key, picture) => iconButton('tool-' + name, act, picture, `${t('key.' + name)} (${key})`)
  keepFocus(the('rail'), () => show(the('rail'),
    h('div', { id: 'whose', title: whose && `${whose} (${clean(agent)})`, data: { testid: 'whose' } },
      agent && [agentAvatar(agent), botName(agent)]),
    h('nav', { 'aria-label': t('sections') }, sections.map(item)),
    h('div.tools',
      h('span', { id: 'connection', title: t(`live.${state}.means`), data: { testid: 'connection', state } },
        h('i'), h('span', t('live.' + state))),
      tool('theme', toggleTheme, 't', icon('theme')),
      tool('language', toggleLanguage, 'l', language() === 'zh' ? 'EN' : '中'), tool('keys', showKeys, '?', '?'))))
  document.body.dataset.section = section
  const group = groups.get(channel, chat)
  const title = section === 'groups' ? group && chatName(group) : t(section)
  document.title = [title && clean(title), agent, 'feishu-relay'].filter(Boolean).join(' · ')
  the('group-title').textContent = t('groups')
  the('group-whose').textContent = whose ?? ''
  the('talk-list').ariaLabel = t('messages')
  the('details').ariaLabel = t('details')
  const none = groups.loaded && !groups.groups.length
  const word = none ? 'empty.groups' : groups.loaded ? 'choose.group' : 'loading'
  show(the('no-talk'), empty(word, none && 'feishu-relay check'))
}

// redraw shows everything again, in another language or with other names.
function redraw() {
  draw()
  groups.draw()
  talk.redraw()
  for (const panel of Object.values(panels)) panel.redraw()
}

function toggleTheme() {
  const { dataset } = document.documentElement
  const dark = dataset.theme ? dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  dataset.theme = dark ? 'light' : 'dark'
  remember('theme', dataset.theme)
}

function toggleLanguage() {
  setLanguage(language() === 'zh' ? 'en' : 'zh')
  redraw()
}

async function readStatus() {
  try {
    status = await api.status()
    const { identity, agents = [] } = status
    for (const { agent_name: agent, bot_name: name } of [identity, ...agents]) learn(agent, name, FROM.card)
    draw()
  } catch (error) {
    if (connection === 'live') fault(error)
  }
}

const inTalk = (act) => () => place().chat && act()

keys({
  next: inTalk(() => talk.step(1)), previous: inTalk(() => talk.step(-1)), end: inTalk(() => talk.toEnd()),
  details: inTalk(() => talk.openDetails()), escape: inTalk(() => talk.escape()),
  search: inTalk(() => talk.find.input.focus()),
  beside(by) {
    const group = groups.beside(by)
    if (group) location.hash = hash(group.channel, group.chat_id)
  },
  section: (name) => (location.hash = '#/' + name),
  theme: toggleTheme, language: toggleLanguage,
})

onNames(later(0, redraw)) // a name that became known is shown everywhere

redraw()
watch({
  events(list) {
    groups.take(list)
    talk.take(list)
    if (!list.some((e) => e.type === 'mail')) return
    panels.mailbox.again()
    panels.agents.again()
  },
  state(now) {
    if (now !== connection) say(t(`live.${now}.means`))
    connection = now
    draw()
  },
  again() {
    groups.load()
    talk.again()
    readStatus()
    for (const panel of Object.values(panels)) panel.again()
  },
})

addEventListener('hashchange', go)
wide.addEventListener('change', go)
document.addEventListener('visibilitychange', () => document.hidden || go())
setInterval(() => {
  if (document.hidden) return
  readStatus()
  groups.draw() // a pause may have ended by itself
}, STATUS_EVERY)
go()
readStatus()
groups.load()
