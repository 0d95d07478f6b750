package feishusim

// Scopes that decide which messages an app receives (docs/feishu.md 3.3).
const (
	ScopeP2P          = "im:message.p2p_msg:readonly"
	ScopeAt           = "im:message.group_at_msg:readonly"             // a user @s the bot
	ScopeAtIncludeBot = "im:message.group_at_msg.include_bot:readonly" // a user or a bot @s it
	ScopeGroup        = "im:message.group_msg"                         // all messages of users
	ScopeGroupAll     = "im:message.group_msg.include_bot:read"        // all messages of users and other bots
	ScopeGroupBots    = "im:message.group_bot_msg:readonly"            // all messages of other bots
)

var (
	p2pScopes     = []string{ScopeP2P, "im:message.p2p_msg"}
	groupScopes   = []string{ScopeGroup, "im:message.group_msg:readonly", ScopeGroupAll}
	atScopes      = []string{ScopeAt, "im:message.group_at_msg", ScopeAtIncludeBot}
	botScopes     = []string{ScopeGroupAll, ScopeGroupBots}
	botAtScopes   = []string{ScopeAtIncludeBot}
	historyScopes = []string{ScopeGroup}
)

// Scopes of calls; one of each list is enough.
var (
	sendScopes     = []string{"im:message", "im:message:send_as_bot", "im:message:send"}
	updateScopes   = []string{"im:message", "im:message:send_as_bot", "im:message:update"}
	recallScopes   = []string{"im:message", "im:message:send_as_bot", "im:message:recall"}
	readScopes     = []string{"im:message", "im:message:readonly", "im:message.history:readonly"}
	reactionScopes = []string{"im:message", "im:message.reactions:write_only"}
	reactionsRead  = []string{"im:message", "im:message:readonly", "im:message.reactions:read"}
	mediaScopes    = []string{"im:resource", "im:resource:upload"}
	resourceScopes = []string{"im:message", "im:message:readonly", "im:message.history:readonly"}
	chatScopes     = []string{"im:chat", "im:chat:readonly", "im:chat:read"}
	memberScopes   = []string{"im:chat.members:read", "im:chat", "im:chat:readonly"}
	contactScopes  = []string{"contact:user.base:readonly", "contact:contact.base:readonly",
		"contact:contact:readonly_as_app"}
	botInfoScopes = []string{"bot:basic_info"}
	cardScopes    = []string{"cardkit:card:write"}
	appScopes     = []string{"application:application:self_manage", "admin:app.info:readonly"}
)

const scopeUserID = "contact:user.employee_id:readonly" // makes user_id visible

// DefaultScopes returns the scopes of an app that receives all messages of
// users, may make every call, and receives no messages of other bots.
func DefaultScopes() []string {
	return []string{
		"im:message", "im:message:send_as_bot", "im:message:readonly", ScopeP2P, ScopeAt, ScopeGroup,
		"im:message.reactions:write_only", "im:resource", "im:chat:readonly", "im:chat.members:read",
		"contact:user.base:readonly", scopeUserID, "bot:basic_info", "cardkit:card:write",
		"application:application:self_manage",
	}
}

// DefaultEvents returns the event types that an app subscribes to by default.
func DefaultEvents() []string {
	return []string{
		eventReceive, eventRecalled, eventReacted, eventUnreacted, "im.chat.member.bot.added_v1", "im.chat.member.bot.deleted_v1",
		"im.chat.disbanded_v1",
	}
}

// receives reports whether m, just sent in c, is delivered to a.
func (s *Server) receives(a *app, c *chat, m *message) bool {
	if a.ID == m.Sender || !c.has(a.ID) {
		return false
	}
	if c.mode == modeP2P {
		return a.may(p2pScopes...)
	}
	at := m.mentioned(a.ID)
	if m.SenderType == senderApp {
		return a.may(botScopes...) || at && a.may(botAtScopes...)
	}
	return a.may(groupScopes...) || at && a.may(atScopes...)
}
