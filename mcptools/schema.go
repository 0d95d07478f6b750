package mcptools

// schema is a JSON Schema, in the few words that every host of a model knows.
type schema map[string]any

func textOf(description string) schema { return schema{"type": "string", "description": description} }

func oneOf(description string, values ...string) schema {
	return schema{"type": "string", "enum": values, "description": description}
}

func numberOf(description string, least, most int) schema {
	return schema{"type": "integer", "minimum": least, "maximum": most, "description": description}
}

func countOf(description string) schema { return schema{"type": "integer", "description": description} }

func flagOf(description string) schema { return schema{"type": "boolean", "description": description} }

func listOf(items schema, description string) schema {
	return schema{"type": "array", "items": items, "description": description}
}

// object is a result, or a part of one. It may have further fields, and no value
// is held to a list: clients throw away a result that breaks its schema, and
// what other programs wrote must not cost a whole inbox.
func object(properties schema, required ...string) schema {
	s := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// arguments is an object with no further fields.
func arguments(properties schema, required ...string) schema {
	s := object(properties, required...)
	s["additionalProperties"] = false
	return s
}
