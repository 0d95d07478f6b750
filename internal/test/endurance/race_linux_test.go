//go:build race

package endurance

func init() { raceDetector = true }
