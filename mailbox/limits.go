package mailbox

// Bounds of an envelope. What is over one is refused with INVALID_MESSAGE, by
// [Decode] where it was received, by [Validate] where it is to be sent.
const (
	// MaxEnvelope is the most bytes of an encoded envelope.
	MaxEnvelope = 1 << 20
	// MaxBody is the most bytes that the text parts of a message have together.
	MaxBody = 64 << 10
	// MaxID is the most bytes of the id of a message, a task, a goal or a correlation.
	MaxID = 200
	// MaxAgentID is the most bytes of an agent's name.
	MaxAgentID = 64
	// MaxParts, MaxTags and MaxTrace are the most entries of these lists.
	MaxParts = 100
	MaxTags  = 50
	MaxTrace = 64
	// MaxFields is the most fields of other programs that metadata has.
	MaxFields = 100
	// MaxHops is the most forwardings that an envelope may have left.
	MaxHops = MaxTrace
	// MaxLife is the most seconds of a life that ends; 0 is one without end.
	MaxLife = 10 * 365 * 24 * 60 * 60

	// maxPath and maxWord are the most bytes of the path of a file, and of an entry of a list
	// of words; maxRetries is the most retries.
	maxPath    = 4096
	maxWord    = 200
	maxRetries = 1000

	// maxDepth is how deep the lists and objects of JSON from others are nested
	// at most; deeper is no message but an attack on the stack.
	maxDepth = 64
)

// Defaults of what an envelope leaves out.
const (
	DefaultHops = 3
	DefaultTTL  = 3600 // life in seconds
)
