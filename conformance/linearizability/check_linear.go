package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// porcupineModel is the model in the checker's terms. The input is a *Move, which has the output, too.
func (m *Model) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return m.Init() },
		Step: func(state, input, _ any) (bool, any) { return m.Step(state.(State), input.(*Move)) },
		DescribeOperation: func(input, _ any) string {
			move := input.(*Move)
			if move.Operation == nil {
				return describe(move)
			}
			return words(move.Request) + answerWords(move.Operation)
		},
		DescribeState: func(state any) string {
			s := state.(State)
			return fmt.Sprintf("revision %d, compacted %d: %v", s.Revision, s.Compact, m.log.At(s.Revision))
		},
	}
}

// operations are the moves in the checker's terms. Those that never return come as clients of their own.
func (p *Plan) operations() []porcupine.Operation {
	clients, end := 0, int64(0)
	for _, move := range p.moves {
		if move.Operation != nil {
			clients = max(clients, move.Operation.Client+1)
			end = max(end, move.Operation.Return)
		}
	}
	var operations []porcupine.Operation
	for _, move := range p.moves {
		operation := porcupine.Operation{Input: move, Call: move.Call, Return: move.Return}
		if move.Return == never {
			// One tick behind everything, whatever the call of an expiry that was not due yet.
			operation.Return = max(end, move.Call) + 1
		}
		if move.known() {
			operation.ClientId = move.Operation.Client
		} else {
			operation.ClientId = clients
			clients++
		}
		operations = append(operations, operation)
	}
	return operations
}

// checkLinearizable looks for one order of all moves that the model allows. If there is none, a picture goes to folder.
func checkLinearizable(p *Plan, f *Findings, patience time.Duration, folder string) {
	f.checked(claimLinearizable, len(p.moves))
	model, operations := p.model.porcupine(), p.operations()
	switch porcupine.CheckOperationsTimeout(model, operations, patience) {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		f.violated(claimLinearizable, "not decided within %v", patience)
	case porcupine.Illegal:
		f.violated(claimLinearizable, "there is no order of the operations that a store could have done them in")
	}
	_, info := porcupine.CheckOperationsVerbose(model, operations, patience)
	f.violated(claimLinearizable, "%s", p.furthest(info))
	if folder == "" {
		return
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		f.violated(claimLinearizable, "no picture: %v", err)
		return
	}
	if err := porcupine.VisualizePath(model, info, filepath.Join(folder, "linearization.html")); err != nil {
		f.violated(claimLinearizable, "no picture: %v", err)
	}
}

// furthest names the operations around the end of the longest order that was found.
func (p *Plan) furthest(info porcupine.LinearizationInfo) string {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	const shown = 6
	placed, text := make([]bool, len(p.moves)), ""
	state := p.model.Init()
	for i, id := range longest {
		placed[id] = true
		_, state = p.model.Step(state, p.moves[id])
		if i >= len(longest)-shown {
			text += fmt.Sprintf("\n    revision %d after %s", state.Revision, p.line(id))
		}
	}
	var waiting []int
	for i, move := range p.moves {
		if !placed[i] && move.Return != never {
			waiting = append(waiting, i)
		}
	}
	slices.SortFunc(waiting, func(a, b int) int { return int(p.moves[a].Return - p.moves[b].Return) })
	for _, id := range waiting[:min(len(waiting), shown)] {
		text += "\n    and then not " + p.line(id)
	}
	return fmt.Sprintf("an order of %d of %d operations ends so:%s", len(longest), len(p.moves), text)
}

func (p *Plan) line(id int) string {
	move := p.moves[id]
	at := func(time int64) float64 { return float64(time) / 1e6 }
	return fmt.Sprintf("%.3f to %.3f ms: %s%s", at(move.Call), at(move.Return), describe(move), answerWords(move.Operation))
}
