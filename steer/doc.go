// Package steer has the rules for controlling the bots of a group: who gets a message, what a
// person's command changes, and when the group is shown that its bots were stopped. It does no
// I/O: no files, no network, no clock.
//
// # The record of a group
//
// All sidecars of a group agree on a [Record]: the settings, which bots are in the group, and
// since when. Each key has the time and the id of the message that set it, and the newest
// wins. So records can be merged in any order, and two changes of different keys at the same
// time both apply. Sidecars exchange changes as [Mark] lines.
//
// # Audience
//
// [AudienceOf] returns who gets a message. In mode [All] it is every bot.
//
// # Commands and texts
//
// [ParseCommand] parses a person's command, in English or Chinese. [Asked.Changes] returns the
// changes of the record that it asks for, and [Patch] those of an API request. The texts that
// people read are here too: [Asked.AnswerText], [StatusText], [HelpText], [WhyText],
// [StopNotice] and [Mistake.Text]. Each text is below 4 KB, and names in it mention nobody.
package steer
