// Package steer decides what follows from a group's settings, its bots and its recent
// messages: who a message is for, what a person's command changes, and when the group is
// shown that its bots were stopped. It is pure: values in, values out, no files, no
// network, no clock.
//
// # The record of a group
//
// All sidecars of a group agree on a [Record]: settings, which bots are there, and
// since when. Each key of it has the time and the id of the message that set it, and the
// newest wins, so that records can be merged in any order and two changes at once both hold.
// Sidecars tell each other of changes by [Mark] lines.
//
// # Audience
//
// [AudienceOf] is who a message is for. Where a group's mode is [All], everybody.
package steer
