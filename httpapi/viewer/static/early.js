// Runs before the page is drawn, so that the remembered theme does not flash in.
try {
  const theme = JSON.parse(localStorage.getItem('feishu-relay.theme'))
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme
} catch {
  // storage is off: the system's theme
}
