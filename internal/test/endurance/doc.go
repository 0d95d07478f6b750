// Package endurance holds the long tests of the released program from outside: its
// processes, its API, official SDKs at its gateway, a real Redis.
//
//   - make faults: errors of the disk, injected into the running process by strace; clocks that
//     are wrong or jump, by a build with another package time;
//   - make soak: traffic, kills and restarts for minutes or hours; each message is
//     accounted for, and memory and files do not grow.
//
// The ordinary test run has short forms of some of them.
package endurance
