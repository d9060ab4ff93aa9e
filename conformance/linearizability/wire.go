package main

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Conversions between the types of the history and those of etcd.

func operationOf(r Request) clientv3.Op {
	switch {
	case r.Range != nil:
		return rangeOperation(r.Range)
	case r.Put != nil:
		return putOperation(r.Put)
	case r.Delete != nil:
		var options []clientv3.OpOption
		if r.Delete.End != "" {
			options = append(options, clientv3.WithRange(r.Delete.End))
		}
		if r.Delete.Prev {
			options = append(options, clientv3.WithPrevKV())
		}
		return clientv3.OpDelete(r.Delete.Key, options...)
	default:
		var compares []clientv3.Cmp
		for _, compare := range r.Txn.If {
			compares = append(compares, compareOf(compare))
		}
		return clientv3.OpTxn(compares, operationsOf(r.Txn.Then), operationsOf(r.Txn.Else))
	}
}

func operationsOf(requests []Request) []clientv3.Op {
	var operations []clientv3.Op
	for _, request := range requests {
		operations = append(operations, operationOf(request))
	}
	return operations
}

var sortTargets = map[string]clientv3.SortTarget{
	"key": clientv3.SortByKey, "version": clientv3.SortByVersion, "create": clientv3.SortByCreateRevision,
	"mod": clientv3.SortByModRevision, "value": clientv3.SortByValue,
}

func rangeOperation(r *Range) clientv3.Op {
	options := []clientv3.OpOption{
		clientv3.WithRev(r.Revision), clientv3.WithLimit(r.Limit), clientv3.WithMinModRev(r.MinMod),
		clientv3.WithMaxModRev(r.MaxMod), clientv3.WithMinCreateRev(r.MinCreate), clientv3.WithMaxCreateRev(r.MaxCreate),
	}
	if r.End != "" {
		options = append(options, clientv3.WithRange(r.End))
	}
	if r.Serializable {
		options = append(options, clientv3.WithSerializable())
	}
	if r.KeysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	if r.CountOnly {
		options = append(options, clientv3.WithCountOnly())
	}
	if r.SortBy != "" {
		order := clientv3.SortAscend
		if r.Descending {
			order = clientv3.SortDescend
		}
		options = append(options, clientv3.WithSort(sortTargets[r.SortBy], order))
	}
	return clientv3.OpGet(r.Key, options...)
}

func putOperation(p *Put) clientv3.Op {
	options := []clientv3.OpOption{clientv3.WithLease(clientv3.LeaseID(p.Lease))}
	if p.Prev {
		options = append(options, clientv3.WithPrevKV())
	}
	if p.IgnoreValue {
		options = append(options, clientv3.WithIgnoreValue())
	}
	if p.IgnoreLease {
		options = append(options, clientv3.WithIgnoreLease())
	}
	return clientv3.OpPut(p.Key, string(expand(p.Value)), options...)
}

func compareOf(c Compare) clientv3.Cmp {
	var compare clientv3.Cmp
	switch c.Target {
	case "version":
		compare = clientv3.Compare(clientv3.Version(c.Key), c.Relation, c.Number)
	case "create":
		compare = clientv3.Compare(clientv3.CreateRevision(c.Key), c.Relation, c.Number)
	case "mod":
		compare = clientv3.Compare(clientv3.ModRevision(c.Key), c.Relation, c.Number)
	case "lease":
		compare = clientv3.Compare(clientv3.LeaseValue(c.Key), c.Relation, c.Number)
	default:
		compare = clientv3.Compare(clientv3.Value(c.Key), c.Relation, string(expand(c.Value)))
	}
	if c.End != "" {
		compare = compare.WithRange(c.End)
	}
	return compare
}

func pairOf(kv *mvccpb.KeyValue) Pair {
	return Pair{
		Key: string(kv.Key), Value: printable(kv.Value), Create: kv.CreateRevision, Mod: kv.ModRevision,
		Version: kv.Version, Lease: kv.Lease,
	}
}

func pairsOf(kvs []*mvccpb.KeyValue) []Pair {
	var pairs []Pair
	for _, kv := range kvs {
		pairs = append(pairs, pairOf(kv))
	}
	return pairs
}

func rangeAnswer(r *pb.RangeResponse) Answer {
	return Answer{Revision: r.Header.GetRevision(), Pairs: pairsOf(r.Kvs), Count: r.Count, More: r.More}
}

func putAnswer(r *pb.PutResponse) Answer {
	answer := Answer{Revision: r.Header.GetRevision()}
	if r.PrevKv != nil {
		answer.Pairs = []Pair{pairOf(r.PrevKv)}
	}
	return answer
}

func deleteAnswer(r *pb.DeleteRangeResponse) Answer {
	return Answer{Revision: r.Header.GetRevision(), Pairs: pairsOf(r.PrevKvs), Count: r.Deleted}
}

func txnAnswer(r *pb.TxnResponse) Answer {
	answer := Answer{Revision: r.Header.GetRevision(), Succeeded: r.Succeeded}
	for _, inner := range r.Responses {
		switch response := inner.Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			answer.Answers = append(answer.Answers, rangeAnswer(response.ResponseRange))
		case *pb.ResponseOp_ResponsePut:
			answer.Answers = append(answer.Answers, putAnswer(response.ResponsePut))
		case *pb.ResponseOp_ResponseDeleteRange:
			answer.Answers = append(answer.Answers, deleteAnswer(response.ResponseDeleteRange))
		case *pb.ResponseOp_ResponseTxn:
			answer.Answers = append(answer.Answers, txnAnswer(response.ResponseTxn))
		}
	}
	return answer
}

func serverOf(header *pb.ResponseHeader) *Server {
	return &Server{Cluster: header.ClusterId, Member: header.MemberId, Term: header.RaftTerm}
}

func eventOf(event *mvccpb.Event) Event {
	converted := Event{Change: Change{Delete: event.Type == mvccpb.DELETE, Pair: pairOf(event.Kv)}}
	if event.PrevKv != nil {
		previous := pairOf(event.PrevKv)
		converted.Prev = &previous
	}
	return converted
}

func watchAnswerOf(at int64, r *pb.WatchResponse) *WatchAnswer {
	answer := &WatchAnswer{
		At: at, Revision: r.Header.GetRevision(), Created: r.Created, Canceled: r.Canceled, Reason: r.CancelReason,
		Fragment: r.Fragment, Compact: r.CompactRevision,
	}
	if r.Header != nil {
		answer.Server = serverOf(r.Header)
	}
	for _, event := range r.Events {
		answer.Events = append(answer.Events, eventOf(event))
	}
	return answer
}
