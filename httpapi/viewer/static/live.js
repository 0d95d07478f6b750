// Watches GET /v1/events. Watching settles nothing and takes no bot's messages;
// /v1/stream, which would, is never opened here.

import { base } from './api.js'

const KINDS = ['message', 'notice', 'recall', 'outcome', 'mail']
const OWN_TRIES = 4 // by the browser, in a row; it repeats what was missed
const LONGEST_WAIT = 15_000 // between tries of ours, in ms
const HIDDEN_PAUSE = 500 // between batches while nobody looks, in ms

// watch calls events with the batches of events, one per frame at most; state
// with { name, at } whenever the connection changes, at being when the next try
// is due; and again whenever it is there, for what was not told before or meanwhile.
export function watch({ events, state, again }) {
  let source, timer
  let failures = 0
  let batch = []

  function flush() {
    const list = batch
    batch = []
    events(list)
  }

  function take(message) {
    let event
    try {
      event = JSON.parse(message.data)
    } catch {
      return // not ours
    }
    if (batch.push(event) > 1) return
    if (document.hidden) setTimeout(flush, HIDDEN_PAUSE)
    else requestAnimationFrame(flush)
  }

  function open() {
    clearTimeout(timer)
    source?.close()
    source = new EventSource(base + '/v1/events?outcomes=all')
    source.onopen = () => {
      failures = 0
      state({ name: 'live' })
      again()
    }
    source.onerror = () => {
      failures++
      if (source.readyState === EventSource.CONNECTING && failures < OWN_TRIES) state({ name: 'connecting' })
      else wait()
    }
    for (const kind of KINDS) source.addEventListener(kind, take)
  }

  // wait tries again later, and later each time: the browser has given up.
  function wait() {
    source.close()
    const pause = Math.min(1000 * 2 ** Math.max(1, failures - OWN_TRIES + 1), LONGEST_WAIT)
    state({ name: navigator.onLine ? 'waiting' : 'offline', at: Date.now() + pause })
    timer = setTimeout(open, pause)
  }

  function soon() {
    if (source.readyState === EventSource.CLOSED && !document.hidden) open()
  }

  state({ name: 'connecting' })
  open()
  addEventListener('pagehide', () => source.close()) // a page kept for going back would hold one of the browser's few connections
  addEventListener('pageshow', soon)
  addEventListener('online', soon)
  addEventListener('focus', soon)
  document.addEventListener('visibilitychange', soon)
  document.addEventListener('visibilitychange', () => document.hidden && flush()) // there is no next frame
}
