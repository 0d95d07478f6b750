// Calls the sidecar's API, the same that scripts use.

// base is the path of the sidecar behind a reverse proxy, such as /relay; '' mostly.
export const base = new URL('..', import.meta.url).pathname.replace(/\/$/, '')

// ApiError is an answer that is no success; its message says how to fix it. Its status is 0 where nothing answered.
export class ApiError extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

async function call(path, { method, body, signal } = {}) {
  let answer, text, said
  try {
    answer = await fetch(base + path, { method, signal, body: body && JSON.stringify(body) })
    text = await answer.text()
  } catch (error) {
    throw error.name === 'AbortError' ? error : new ApiError(0, error.message)
  }
  if (answer.status === 401) location.reload() // the page is the sign-in form then
  try {
    said = JSON.parse(text || '{}')
  } catch (error) {
    if (answer.ok) throw new ApiError(0, error.message) // the connection was cut in the middle
  }
  if (!answer.ok) throw new ApiError(answer.status, said?.error?.message ?? answer.statusText)
  return said
}

const part = encodeURIComponent

function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== '')
  return given.length ? '?' + new URLSearchParams(given) : ''
}

export const status = () => call('/v1/status')
export const transcripts = () => call('/v1/transcripts')

// transcript reads a page of a conversation, oldest first. before is the `earlier` of the page read
// before; q leaves only messages that contain it.
export const transcript = (channel, chat, { signal, ...page }) =>
  call(`/v1/transcripts/${part(channel)}/${part(chat)}${query(page)}`, { signal })

export const outcomes = (channel, chat, limit, signal) =>
  call('/v1/outcomes' + query({ channel, chat_id: chat, limit }), { signal })

const groupPath = (channel, chat, action = '') =>
  `/v1/groups/${part(chat)}${action}${query({ channel: channel === 'feishu' ? '' : channel })}`

export const groups = () => call('/v1/groups')
export const group = (channel, chat) => call(groupPath(channel, chat))
export const changeGroup = (channel, chat, body) => call(groupPath(channel, chat), { method: 'PATCH', body })
export const forgetGroup = (channel, chat) => call(groupPath(channel, chat, '/settings'), { method: 'DELETE' })
export const stopGroup = (channel, chat) => call(groupPath(channel, chat, '/stop'), { method: 'POST' })
export const continueGroup = (channel, chat) => call(groupPath(channel, chat, '/continue'), { method: 'POST' })

export const agents = () => call('/v1/mailbox/agents')
export const tasks = () => call('/v1/mailbox/tasks')
export const inbox = () => call('/v1/mailbox/inbox?limit=200')
export const deadLetters = () => call('/v1/mailbox/dead-letters')
export const replay = (id) => call(`/v1/mailbox/dead-letters/${part(id)}/replay`, { method: 'POST' })
