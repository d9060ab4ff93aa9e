package main

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// operationPatience is the timeout of one request, including a restart of the server.
const operationPatience = 20 * time.Second

// connect returns a client of etcd's library. Requests wait while the server is down, so that they arrive as soon as it is
// back. Writes are never retried, because they could then take effect twice.
func connect(url string, options ...grpc.DialOption) (*clientv3.Client, error) {
	options = append(options,
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 150 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(ctx, method, request, reply, connection, append(options, grpc.WaitForReady(true))...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn,
			method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(ctx, description, connection, method, append(options, grpc.WaitForReady(true))...)
		}),
	)
	return clientv3.New(clientv3.Config{
		Endpoints: []string{url}, DialOptions: options, MaxUnaryRetries: 1, Logger: zap.NewNop(),
	})
}

// A Client executes operations and records them.
type Client struct {
	id       int
	etcd     *clientv3.Client
	recorder *Recorder
}

// Do sends one request, records the operation with its outcome, and returns it.
func (c *Client) Do(ctx context.Context, request Request) Operation {
	ctx, cancel := context.WithTimeout(ctx, operationPatience)
	defer cancel()
	operation := Operation{Client: c.id, Request: request, Call: c.recorder.Now()}
	header, answer, err := c.send(ctx, request)
	operation.Return = c.recorder.Now()
	switch {
	case err == nil && header == nil:
		operation.Unknown, operation.Failure = true, "the answer has no header"
	case err == nil:
		answer.Revision = header.Revision
		operation.Answer, operation.Server = answer, serverOf(header)
	case refusal(err) != "":
		operation.Answer.Error = refusal(err)
	default:
		operation.Unknown, operation.Failure = true, err.Error()
	}
	c.recorder.Add(operation)
	return operation
}

// refusals maps the errors that count as answers.
var refusals = map[error]string{
	rpctypes.ErrCompacted:     errCompacted,
	rpctypes.ErrFutureRev:     errFuture,
	rpctypes.ErrLeaseNotFound: errLeaseNotFound,
	rpctypes.ErrLeaseExist:    errLeaseExists,
	rpctypes.ErrKeyNotFound:   errKeyNotFound,
}

func refusal(err error) string {
	for refused, text := range refusals {
		if errors.Is(err, refused) {
			return text
		}
	}
	return ""
}

func (c *Client) send(ctx context.Context, r Request) (*pb.ResponseHeader, Answer, error) {
	switch {
	case r.Compact != nil:
		var options []clientv3.CompactOption
		if r.Compact.Physical {
			options = append(options, clientv3.WithCompactPhysical())
		}
		response, err := c.etcd.Compact(ctx, r.Compact.Revision, options...)
		if err != nil {
			return nil, Answer{}, err
		}
		return response.Header, Answer{}, nil
	case r.Range != nil || r.Put != nil || r.Delete != nil || r.Txn != nil:
		response, err := c.etcd.Do(ctx, operationOf(r))
		if err != nil {
			return nil, Answer{}, err
		}
		switch {
		case r.Range != nil:
			return response.Get().Header, rangeAnswer((*pb.RangeResponse)(response.Get())), nil
		case r.Put != nil:
			return response.Put().Header, putAnswer((*pb.PutResponse)(response.Put())), nil
		case r.Delete != nil:
			return response.Del().Header, deleteAnswer((*pb.DeleteRangeResponse)(response.Del())), nil
		default:
			return response.Txn().Header, txnAnswer((*pb.TxnResponse)(response.Txn())), nil
		}
	default:
		return c.sendLease(ctx, r)
	}
}

func (c *Client) sendLease(ctx context.Context, r Request) (*pb.ResponseHeader, Answer, error) {
	switch {
	case r.Grant != nil:
		// The Grant of etcd's client has no parameter for the id.
		request := &pb.LeaseGrantRequest{ID: r.Grant.Lease, TTL: r.Grant.TTL}
		response, err := pb.NewLeaseClient(c.etcd.ActiveConnection()).LeaseGrant(ctx, request)
		if err != nil {
			return nil, Answer{}, rpctypes.Error(err)
		}
		return response.Header, Answer{TTL: response.TTL}, nil
	case r.Revoke != 0:
		response, err := c.etcd.Revoke(ctx, clientv3.LeaseID(r.Revoke))
		if err != nil {
			return nil, Answer{}, err
		}
		return response.Header, Answer{}, nil
	case r.KeepAlive != 0:
		response, err := c.etcd.KeepAliveOnce(ctx, clientv3.LeaseID(r.KeepAlive))
		if err != nil {
			return nil, Answer{}, err
		}
		return response.ResponseHeader, Answer{TTL: response.TTL}, nil
	case r.TimeToLive != 0:
		response, err := c.etcd.TimeToLive(ctx, clientv3.LeaseID(r.TimeToLive), clientv3.WithAttachedKeys())
		if err != nil {
			return nil, Answer{}, err
		}
		answer := Answer{TTL: response.TTL, Granted: response.GrantedTTL}
		for _, key := range response.Keys {
			answer.Keys = append(answer.Keys, string(key))
		}
		return response.ResponseHeader, answer, nil
	default:
		response, err := c.etcd.Leases(ctx)
		if err != nil {
			return nil, Answer{}, err
		}
		answer := Answer{}
		for _, lease := range response.Leases {
			answer.Leases = append(answer.Leases, int64(lease.ID))
		}
		return response.ResponseHeader, answer, nil
	}
}
