// The place in the page, as the address bar's hash has it: #/groups/feishu/oc_x/om_y, #/agents, #/mailbox, #/system.

export const sections = ['groups', 'agents', 'mailbox', 'system']

// hash is the address of a group, or of a message in it.
export const hash = (channel, chat, message) =>
  '#/groups' + [channel, chat, message].filter(Boolean).map((part) => '/' + encodeURIComponent(part)).join('')

// route reads the address.
export function route() {
  const [section, channel, chat, message] = location.hash.replace(/^#\/?/, '').split('/').map(decoded)
  return sections.includes(section) ? { section, channel, chat, message } : { section: 'groups' }
}

function decoded(part) {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
