// Package feishusim is a stand-in for Feishu: apps, people and groups in memory,
// the REST API that bots use, the long connection and webhooks. Tests use it in
// process, the demo and bot developers through `feishu-relay sim`.
//
// It follows the known behaviour of the platform (docs/feishu.md), and is not the
// platform: where Feishu's behaviour is not known, it does the simplest.
// All state is in memory.
//
// # What it simulates
//
//   - Identity: an open_id belongs to the app that sees it, union_id and app_id to
//     all; tenant tokens that expire; permission errors by the app's scopes.
//   - Messages: text, post, cards (inline, template, CardKit entity with streaming),
//     files; reply, topic, edit, PATCH, recall, reactions, uuid; the codes
//     of errors. Contents are converted to their received form: at-tags to
//     @_user_N and mentions, posts without their locale, cards with user_dsl.
//   - Groups: an owner and managers, who may recall messages of others.
//   - Events: scopes decide who receives a message ([ScopeAt] and its neighbours),
//     one connection of the app at random gets it, and events that are not
//     acknowledged in time are delivered again. A bot does not receive its own
//     messages, but gets the events of its own reactions.
//   - Reads: bots, users, chats, members, messages, history, files, the number of long connections.
//   - Faults: see [Fault].
//
// SIM_REDELIVER=3s,8s are the waits after which `feishu-relay sim` delivers an event without acknowledgement again
// ([Options.FromEnv]); SIM_STREAM_FOR=20s is how long a card of CardKit may stream there.
//
// # In a test
//
//	s := feishusim.New(feishusim.Options{})
//	defer s.Close()
//	url, err := s.Listen("127.0.0.1:0")
//	bot := s.AddApp(feishusim.App{Name: "BotA"})
//	ann := s.AddUser("Ann")
//	lab := s.AddGroup("Lab", bot.ID, ann.ID)
//	// start a bot with bot.ID, bot.Secret and the base URL, then
//	err = s.WaitConnected(ctx, bot.ID, 1)
//	_, err = s.Say(lab.ID, ann.ID, "@BotA hello")
//	answer, err := s.Wait(ctx, func(m feishusim.Message) bool { return m.Sender == bot.ID })
//
// Generated app ids are random, since the SDKs cache tokens by app id for the
// whole process.
//
// # Over HTTP
//
// The same is available under /sim/, on loopback addresses only. Objects are
// named by id or by a unique name:
//
//	curl -s $SIM/sim/state
//	curl -s $SIM/sim/apps   -d '{"name":"BotC","scopes":["im:message","im:message.group_at_msg:readonly"]}'
//	curl -s -X PATCH $SIM/sim/apps -d '{"app_id":"cli_…","webhook_url":"http://127.0.0.1:8788/webhook/event"}'  # "none": long connection
//	curl -s $SIM/sim/users  -d '{"name":"Bob"}'
//	curl -s $SIM/sim/groups -d '{"name":"Lab 2","members":["BotA","BotC","Bob"],"topic":false}'
//	curl -s $SIM/sim/say    -d '{"chat":"Lab","user":"Ann","text":"@BotA hello"}'
//	curl -s $SIM/sim/say    -d '{"app":"BotA","user":"Ann","text":"in private"}'
//	curl -s "$SIM/sim/messages?chat=Lab"
//	curl -s $SIM/sim/join   -d '{"group":"Lab","member":"BotC"}'     # leave, disband
//	curl -s $SIM/sim/disband -d '{"group":"Lab","status":"dissolved_save"}'  # still listed; sends: 232009
//	curl -s $SIM/sim/reid   -d '{"app":"BotA"}'                      # other open_ids, as after it was removed and added
//	curl -s $SIM/sim/say    -d '{"chat":"Lab","user":"Ann","children":[{"user":"Bob","text":"hi"}]}'  # a merged forward
//	curl -s -X PATCH $SIM/sim/groups -d '{"name":"Lab","owner":"Ann","managers":["Bob"]}'
//	curl -s $SIM/sim/recall -d '{"message_id":"om_…","user":"Ann"}'  # without user: by its sender
//	curl -s $SIM/sim/react  -d '{"message_id":"om_…","user":"Ann","emoji_type":"THUMBSUP"}'
//	curl -s $SIM/sim/faults -d '{"kind":"answer","route":"POST /open-apis/im/v1/messages","code":230020,"count":2}'
//	curl -s -X DELETE $SIM/sim/faults
//	curl -s $SIM/sim/revoke -d '{"app":"cli_…"}'                     # its tokens
//	curl -s "$SIM/sim/openid?app=BotA&of=BotB"
//	curl -s "$SIM/sim/deliveries?app=cli_…&message=om_…"
//	curl -s $SIM/sim/requests
//
// Errors are {"error":"…"}.
package feishusim
