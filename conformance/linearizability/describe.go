package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// describe is a move in a few words, for messages and pictures.
func describe(m *Move) string {
	if m.Operation == nil {
		return fmt.Sprintf("the end of lease %d", m.Request.Expire)
	}
	text := fmt.Sprintf("operation %d of client %d, %s", m.Operation.ID, m.Operation.Client, words(m.Request))
	if m.Operation.Unknown {
		text += " (no answer)"
	}
	return text
}

// words are a request without its empty fields: put{key:a value:b}.
func words(r Request) string {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	text := strings.NewReplacer(`"`, "", ",", " ").Replace(string(raw))
	return strings.TrimSuffix(strings.TrimPrefix(strings.Replace(text, ":", "", 1), "{"), "}")
}

func answerWords(o *Operation) string {
	switch {
	case o.Unknown:
		return "no answer: " + o.Failure
	case o.Answer.Error != "":
		return o.Answer.Error
	}
	raw, err := json.Marshal(o.Answer)
	if err != nil {
		panic(err)
	}
	return strings.NewReplacer(`"`, "", ",", " ").Replace(string(raw))
}
