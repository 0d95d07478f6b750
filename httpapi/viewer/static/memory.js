// What the browser remembers of the page: theme, language, what was read.

const PREFIX = 'feishu-relay.'

export function remembered(key) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + key))
  } catch {
    return null // none, or storage is off
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value))
  } catch {
    // storage is off or full: forgotten with the page
  }
}
