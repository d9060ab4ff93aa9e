package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// describe returns a short description of a move, for messages and visualizations.
func describe(m *Move) string {
	if m.Operation == nil {
		return fmt.Sprintf("the expiry of lease %d", m.Request.Expire)
	}
	text := fmt.Sprintf("operation %d of client %d, %s", m.Operation.ID, m.Operation.Client, words(m.Request))
	if m.Operation.Unknown {
		text += " (no answer)"
	}
	return text
}

// words formats a request without its empty fields: put{key:a value:b}.
func words(r Request) string {
	text := plain(r)
	return strings.TrimSuffix(strings.TrimPrefix(strings.Replace(text, ":", "", 1), "{"), "}")
}

// answerWords formats the answer, to follow describe or words.
func answerWords(o *Operation) string {
	switch {
	case o == nil:
		return ""
	case o.Unknown:
		return ", no answer: " + o.Failure
	case o.Answer.Error != "":
		return ", answered " + o.Answer.Error
	}
	return ", answered " + plain(o.Answer)
}

// plain formats a value as JSON without quotes and commas.
func plain(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return strings.NewReplacer(`"`, "", ",", " ", "\n", "").Replace(text.String())
}
