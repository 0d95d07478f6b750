// What was said and stopped last, in all groups, for the sections beside the groups.

import * as api from './api.js'
import { h } from './h.js'
import { t } from './i18n.js'
import { clean, cut } from './text.js'
import { age } from './age.js'
import { isBot, nameOf } from './conversation.js'
import { FROM, chatName, learn } from './names.js'
import { hash } from './route.js'
import { why } from './chips.js'

const READ = 5 // groups whose newest messages are read, those that were written to last
const FAR = 50 // messages of each

const pages = new Map() // channel/chat → { last, entries }

// groups lists what the sidecar knows of the groups, the one last written to first, each with
// its newest message as last and its newest messages as entries, if these were read.
export async function groups() {
  const [{ transcripts }, { groups: settings }] = await Promise.all([api.transcripts(), api.groups()])
  const rows = transcripts.map((g) => ({ ...settings.find((s) => s.channel === g.channel && s.chat_id === g.chat_id), ...g }))
  for (const { agent, name } of settings.flatMap((g) => g.bots)) learn(agent, name, FROM.group)
  await Promise.all(rows.slice(0, READ).map(async (g) => (g.entries = await newest(g))))
  return rows
}

// newest reads a group's newest messages, unless they are known.
async function newest({ channel, chat_id, last }) {
  const key = channel + '/' + chat_id
  const known = pages.get(key)
  if (known && known.last === last?.message_id) return known.entries
  const { entries } = await api.transcript(channel, chat_id, { limit: FAR })
  if (pages.size >= READ) pages.delete(pages.keys().next().value)
  const shown = entries.filter((e) => e.role !== 'notice').map(({ content, ...e }) => e)
  pages.set(key, { last: last?.message_id, entries: shown })
  return shown
}

// lastMessage is the newest message of an agent, or of anybody: { group, entry }; undefined: none is known.
export function lastMessage(rows, agent) {
  const all = rows.flatMap((group) => (group.entries ?? [group.last]).filter((e) => e && (!agent || (isBot(e) && e.sender === agent))).map((entry) => ({ group, entry })))
  return all.reduce((a, b) => (a && a.entry.ts >= b.entry.ts ? a : b), undefined)
}

// lastStop is the newest stop at an agent, or at any: { group, stop }; undefined: there was none.
export function lastStop(rows, agent) {
  const all = rows.filter((g) => g.last_stop && (!agent || g.last_stop.bots.includes(agent))).map((group) => ({ group, stop: group.last_stop }))
  return all.reduce((a, b) => (a && a.stop.at >= b.stop.at ? a : b), undefined)
}

const groupName = (g) => clean(cut(chatName(g), 60))

// groupLinks are the groups as links.
export const groupLinks = (rows) => h('span', { class: 'group-links' }, rows.slice(0, 20).map((g) => h('a', { href: hash(g.channel, g.chat_id) }, h('bdi', null, groupName(g)))), rows.length > 20 && '…')

// messageLink is when a message was said and where, and leads to it.
export function messageLink({ group, entry }, named = true) {
  return h('a', { href: hash(group.channel, group.chat_id, entry.message_id), class: 'plain-link' }, age(entry.ts), ' · ', h('bdi', null, groupName(group)), named && [' · ', h('bdi', null, clean(cut(nameOf(entry), 60)))])
}

// stopLink is when a message was stopped and why, and leads to it.
export function stopLink({ group, stop }) {
  return h('a', { href: hash(group.channel, group.chat_id, stop.message_id), class: 'plain-link' }, age(stop.at), ' · ', h('bdi', null, groupName(group)), ' · ', h('span', { class: 'stop' }, why({ stopped: stop.reason }, group.limits)))
}

// lines are rows of a table: the groups, the last message and the last stop of an agent, or of all.
export const lines = (rows, agent) => {
  const own = agent ? rows.filter((g) => g.bots?.some((b) => b.agent === agent)) : rows
  const message = lastMessage(rows, agent)
  const stop = lastStop(rows, agent)
  return [
    [t('groups'), own.length > 0 && groupLinks(own)],
    [t('last.message'), message && messageLink(message, !agent)],
    [t('last.stop'), stop && stopLink(stop)],
  ]
}
