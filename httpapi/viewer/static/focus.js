// Keeps the keyboard's place when a part of the page is drawn anew.

// keepFocus runs draw, which replaces what root holds, and puts the focus back to
// where it was in root.
export function keepFocus(root, draw) {
  const focused = document.activeElement
  const way = []
  if (focused !== root && root.contains(focused)) {
    for (let e = focused; e !== root; e = e.parentNode) way.unshift([...e.parentNode.children].indexOf(e))
  }
  draw()
  let place = root
  for (const i of way) place = place?.children[i]
  if (way.length && place?.tagName === focused.tagName) place.focus({ preventScroll: true })
}

// selecting reports whether somebody is selecting text in root, which drawing
// anew would undo.
export const selecting = (root) => !getSelection().isCollapsed && root.contains(getSelection().anchorNode)
