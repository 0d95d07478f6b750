// Calls the sidecar's API, the same that scripts use.

// base is the path that the sidecar has behind a reverse proxy, such as /relay; '' mostly.
export const base = new URL('..', import.meta.url).pathname.replace(/\/$/, '')

// ApiError is an answer that is no success; its message says how to mend it.
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message)
    this.status = status
    this.code = code
  }
}

async function call(path, options) {
  let answer
  try {
    answer = await fetch(base + path, { headers: { Accept: 'application/json' }, credentials: 'same-origin', ...options })
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new ApiError(0, 'unreachable', error.message)
  }
  if (answer.status === 401) location.reload() // answers with the sign-in form
  const body = await answer.text().then((text) => (text ? JSON.parse(text) : {})).catch((error) => {
    if (error.name === 'AbortError') throw error // while the answer was read
    if (answer.ok) throw new ApiError(0, 'unreachable', error.message) // the connection was cut in the middle of it
  })
  if (!answer.ok) {
    const { code = 'http_' + answer.status, message = answer.statusText } = body?.error ?? {}
    throw new ApiError(answer.status, code, message)
  }
  return body
}

function query(values) {
  const given = Object.entries(values).filter(([, v]) => v !== undefined && v !== '')
  return given.length ? '?' + new URLSearchParams(given) : ''
}

const part = encodeURIComponent

export const status = () => call('/v1/status')
export const transcripts = () => call('/v1/transcripts')

// transcript reads a page of a conversation, oldest first. before is the
// `earlier` of the page read before; q leaves only what contains it.
export function transcript(channel, chat, { limit, before, q, signal } = {}) {
  return call(`/v1/transcripts/${part(channel)}/${part(chat)}${query({ limit, before, q })}`, { signal })
}

export function outcomes(channel, chat, { limit, signal } = {}) {
  return call('/v1/outcomes' + query({ channel, chat_id: chat, limit }), { signal })
}

export const groups = () => call('/v1/groups')

// group is how the bots of a group behave, and what people have set.
export const group = (channel, chat) => call(groupPath(channel, chat))
export const changeGroup = (channel, chat, change) => call(groupPath(channel, chat), { method: 'PATCH', body: JSON.stringify(change) })
export const forgetGroup = (channel, chat) => call(groupPath(channel, chat, '/settings'), { method: 'DELETE' })
export const stopGroup = (channel, chat) => call(groupPath(channel, chat, '/stop'), { method: 'POST' })
export const continueGroup = (channel, chat) => call(groupPath(channel, chat, '/continue'), { method: 'POST' })

const groupPath = (channel, chat, action = '') => `/v1/groups/${part(chat)}${action}${query({ channel: channel === 'feishu' ? '' : channel })}`

export const agents = () => call('/v1/mailbox/agents')
export const tasks = () => call('/v1/mailbox/tasks')
export const inbox = () => call('/v1/mailbox/inbox?limit=200')
export const deadLetters = () => call('/v1/mailbox/dead-letters')
export const replay = (id) => call(`/v1/mailbox/dead-letters/${part(id)}/replay`, { method: 'POST' })
