//go:build race

package filebox_test

// raceDetector makes everything several times slower.
const raceDetector = true
