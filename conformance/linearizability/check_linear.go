package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// porcupine adapts the model to the checker. The input is a *Move, which includes the output.
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

// operations converts the moves for the checker. Each unanswered move gets a client of its own.
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
			// One tick after everything else, even if the expiry was not due yet.
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

// checkLinearizable searches for an order of all moves that the model allows. If there is none, it writes a visualization to
// folder.
func checkLinearizable(p *Plan, f *Findings, patience time.Duration, folder string) {
	f.checked(claimLinearizable, len(p.moves))
	model, operations := p.model.porcupine(), p.operations()
	switch porcupine.CheckOperationsTimeout(model, operations, patience) {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		f.violated(claimLinearizable, "not decided within %v", patience)
	case porcupine.Illegal:
		f.violated(claimLinearizable, "there is no order in which a store could have executed the operations")
	}
	_, info := porcupine.CheckOperationsVerbose(model, operations, patience)
	f.violated(claimLinearizable, "%s", p.furthest(info))
	if folder == "" {
		return
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		f.violated(claimLinearizable, "no visualization: %v", err)
		return
	}
	if err := porcupine.VisualizePath(model, info, filepath.Join(folder, "linearization.html")); err != nil {
		f.violated(claimLinearizable, "no visualization: %v", err)
	}
}

// furthest describes the end of the longest order found, and the operations that could not follow.
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
		text += "\n    impossible next: " + p.line(id)
	}
	return fmt.Sprintf("the longest order, of %d of %d operations, ends with:%s", len(longest), len(p.moves), text)
}

func (p *Plan) line(id int) string {
	move := p.moves[id]
	at := func(time int64) float64 { return float64(time) / 1e6 }
	return fmt.Sprintf("%.3f to %.3f ms: %s%s", at(move.Call), at(move.Return), describe(move), answerWords(move.Operation))
}
