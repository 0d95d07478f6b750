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
//
// # Commands and texts
//
// [ParseCommand] reads what a person asks for, in English or Chinese, [Asked.Changes] is the
// change of the record that this is, and [Patch] the same of a request to the API. What people
// are told is here too: [Asked.AnswerText], [StatusText], [HelpText], [WhyText], [StopNotice]
// and [Mistake.Text]. Each text is below 4 KB, and names in it mention nobody.
package steer
