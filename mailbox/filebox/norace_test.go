//go:build !race

package filebox_test

const raceDetector = false
