// Watches GET /v1/events. Watching settles nothing and takes no bot's messages; /v1/stream, which would, is
// never opened here.

import { base } from './api.js'

const KINDS = ['message', 'notice', 'recall', 'outcome', 'mail']
const OWN_TRIES = 4 // by the browser, in a row; it asks for what was missed
const LONGEST_WAIT = 15_000 // ms between tries of ours
const HIDDEN_PAUSE = 500 // ms between batches while the page is hidden

// watch calls events with the batches of events, one per frame at most; state with its name whenever the
// connection changes; and again whenever it is there, for what was missed.
export function watch({ events, state, again }) {
  let source, timer
  let failures = 0
  let batch = []

  function flush() {
    const list = batch
    batch = []
    if (list.length) events(list)
  }

  function take({ data }) {
    if (batch.push(JSON.parse(data)) > 1) return
    if (document.hidden) setTimeout(flush, HIDDEN_PAUSE)
    else requestAnimationFrame(flush)
  }

  function open() {
    clearTimeout(timer)
    source?.close()
    source = new EventSource(base + '/v1/events?outcomes=all')
    source.onopen = () => {
      failures = 0
      state('live')
      again()
    }
    source.onerror = () => {
      failures++
      if (source.readyState === EventSource.CONNECTING && failures < OWN_TRIES) return state('connecting')
      source.close() // the browser has given up: try later, and later each time
      const pause = Math.min(1000 * 2 ** Math.max(1, failures - OWN_TRIES + 1), LONGEST_WAIT)
      state(navigator.onLine ? 'waiting' : 'offline')
      timer = setTimeout(open, pause)
    }
    for (const kind of KINDS) source.addEventListener(kind, take)
  }

  function soon() {
    if (document.hidden) flush() // there is no next frame
    else if (source.readyState === EventSource.CLOSED) open()
  }

  state('connecting')
  open()
  // A page that is kept for going back would hold one of the browser's few connections.
  addEventListener('pagehide', () => source.close())
  for (const event of ['pageshow', 'online', 'focus']) addEventListener(event, soon)
  document.addEventListener('visibilitychange', soon)
}
