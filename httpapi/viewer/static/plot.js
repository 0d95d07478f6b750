// Plots over the hours of a day, drawn by uPlot, which is loaded when the first one is.

import { base } from './api.js'
import { h } from './h.js'
import { t } from './i18n.js'
import { hourOf, clock, number } from './format.js'

const HEIGHT = 190 // px
const HOUR = 3_600_000 // ms

let loading

// library is uPlot, loaded once.
function library() {
  loading ??= new Promise((done, failed) => {
    const script = h('script', { src: base + '/viewer/uPlot.iife.min.js', onload: () => done(window.uPlot), onerror: () => ((loading = undefined), failed(new Error('uPlot cannot be loaded'))) })
    document.head.append(script)
  })
  return loading
}

// colour is what a CSS variable is now, in the theme.
function colour(name) {
  const probe = h('span')
  probe.style.color = `var(--${name})`
  document.body.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

// plot draws series [{ label, colour, values }] over hours into element. Bars stand on each other;
// lines leave out what is null. say writes a value.
export async function plot(element, hours, series, { bars = true, say = number } = {}) {
  const UPlot = await library()
  if (!element.isConnected) return
  const width = element.clientWidth
  const x = hours.map(({ at }) => (at + HOUR / 2) / 1000)
  const [from, to] = [hours[0].at / 1000, (hours.at(-1).at + HOUR) / 1000]
  const stacked = series.map((_, i) => hours.map((_, k) => (bars ? series.slice(0, i + 1).reduce((sum, s) => sum + s.values[k], 0) : series[i].values[k])))
  const axis = { stroke: colour('soft'), grid: { stroke: colour('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' }
  const every = width < 500 ? 6 : 3
  const chart = new UPlot({
    width, height: HEIGHT, padding: [8, 14, 0, 0],
    scales: { x: { time: false, range: [from, to] }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, bars ? 4 : 10) * 1.08] } },
    axes: [
      { ...axis, size: 28, gap: 4, splits: () => hours.filter((_, i) => i % every === 0).map(({ at }) => at / 1000), values: (_, list) => list.map((v) => hourOf(v * 1000)) },
      { ...axis, size: 52, gap: 6, incrs: bars ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] : undefined, values: (_, list) => list.map((v) => say(v)) },
    ],
    cursor: { drag: { x: false, y: false }, y: false },
    legend: { live: true, markers: { width: 0, fill: (_, i) => i && colour(series[order(i - 1)].colour) } },
    series: [
      { label: t('insight.hour'), value: (_, v) => (v ? clock(v * 1000 - HOUR / 2) : '') },
      ...series.map((_, i) => one(UPlot, series[order(i)])),
    ],
  }, [x, ...series.map((_, i) => stacked[order(i)])], element)
  new ResizeObserver(() => element.clientWidth > 0 && element.clientWidth !== chart.width && chart.setSize({ width: element.clientWidth, height: HEIGHT })).observe(element)

  // order draws the highest bars first, behind the others.
  function order(i) {
    return bars ? series.length - 1 - i : i
  }

  function one({ paths }, s) {
    const stroke = colour(s.colour)
    const value = (_, v, __, k) => (k === null || k === undefined || s.values[k] === null ? '' : say(s.values[k]))
    if (bars) return { label: s.label, fill: stroke, stroke, width: 0, points: { show: false }, paths: paths.bars({ size: [0.7, 36] }), value }
    return { label: s.label, stroke, width: 2, points: { show: true, size: 6, fill: stroke }, spanGaps: false, value }
  }
}
