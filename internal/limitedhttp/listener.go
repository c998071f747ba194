// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package limitedhttp

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var errTooLarge = errors.New("the TLS handshake and the header are too large")

// Limit bounds the number of connections of a listener whose request is not being served. The configuration of TLS can
// be nil. Otherwise, it has GetCertificate.
func Limit(tcp net.Listener, config *tls.Config) net.Listener {
	limited := &listener{Listener: tcp, connections: NewQuota(MaxConnections)}
	if config == nil {
		return limited
	}
	return tls.NewListener(limited, limitSignatures(config))
}

type listener struct {
	net.Listener
	connections *Quota
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Connection{Conn: accepted, accepted: time.Now(), ended: make(chan struct{})}
	c.remaining.Store(maxHandshakeBytes)
	// The server then closes the connection, which releases its use.
	c.use = l.connections.use(c.Peer(), 1, sync.OnceFunc(func() {
		close(c.ended)
		_ = accepted.Close()
	}))
	c.use.isStalled = c.isStalled
	c.use.renew()
	return c, nil
}

// Connection is a TCP connection of a peer.
type Connection struct {
	net.Conn
	use *Use
	// ended is closed if the connection is closed in favor of another one.
	ended chan struct{}
	// remaining is the number of bytes that the peer can still send: crypto/tls and net/http would buffer
	// several hundred KiB of an endless handshake or header.
	remaining atomic.Int64

	accepted time.Time
	// waited is how long the current request has waited for its peer, without a current Read. waiting is when that
	// began, relative to accepted; 0 if there is none.
	waited, waiting atomic.Int64
}

type connectionKey struct{}

// ConnectionFrom returns the connection of a request.
func ConnectionFrom(ctx context.Context) *Connection {
	return ctx.Value(connectionKey{}).(*Connection)
}

// connectionOf returns the TCP connection below a TLS connection.
func connectionOf(conn net.Conn) *Connection {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return conn.(*Connection)
}

// renewIdle allows the listener to close a connection after its request has been served.
func renewIdle(conn net.Conn, state http.ConnState) {
	if state == http.StateIdle {
		idle := connectionOf(conn)
		idle.remaining.Store(maxHandshakeBytes)
		idle.waited.Store(0)
		idle.use.renew()
	}
}

// AllowBody lets the peer send a body.
func (c *Connection) AllowBody(size int64) { c.remaining.Store(size) }

// Serving excludes the connection from those that can be closed, until its request has been served. The caller bounds
// the number of these requests.
func (c *Connection) Serving() { c.use.Release() }

// Peer returns the host of the other end.
func (c *Connection) Peer() string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	return host
}

// Read implements net.Conn.
func (c *Connection) Read(p []byte) (int, error) {
	begin := int64(time.Since(c.accepted))
	c.waiting.Store(begin)
	n, err := c.Conn.Read(p)
	c.waiting.Store(0)
	c.waited.Add(int64(time.Since(c.accepted)) - begin)
	if c.remaining.Add(-int64(n)) < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// isStalled reports whether the current request has waited for its peer for long.
func (c *Connection) isStalled() bool {
	waited := c.waited.Load()
	if begin := c.waiting.Load(); begin > 0 {
		waited += int64(time.Since(c.accepted)) - begin
	}
	return waited > int64(maxWait)
}

// Close implements net.Conn.
func (c *Connection) Close() error {
	c.use.Release()
	return c.Conn.Close()
}

// maxSignatures is the number of concurrent signatures in TLS handshakes of all servers. Signatures take most of the
// time of a handshake. Otherwise, a flood of handshakes could delay controllers until the manager loses its Lease.
const maxSignatures = 1

var signatures = make(chan struct{}, maxSignatures)

// limitSignatures limits the processor time of TLS handshakes.
func limitSignatures(config *tls.Config) *tls.Config {
	get := config.GetCertificate
	config = config.Clone()
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := get(hello)
		if err != nil {
			return nil, err
		}
		limited := *certificate
		if key, ok := limited.PrivateKey.(crypto.Signer); ok {
			limited.PrivateKey = limitedSigner{key, connectionOf(hello.Conn)}
		}
		return &limited, nil
	}
	return config
}

type limitedSigner struct {
	crypto.Signer
	connection *Connection
}

// Sign implements crypto.Signer.
func (s limitedSigner) Sign(random io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	select {
	case signatures <- struct{}{}:
		defer func() { <-signatures }()
	case <-s.connection.ended:
		return nil, net.ErrClosed
	}
	return s.Signer.Sign(random, digest, options)
}

// Limits for peers.
const (
	// receiveTimeout limits the TLS handshake, and the time from the first byte of a request to its last. A peer in
	// the same network needs milliseconds.
	receiveTimeout = 5 * time.Second
	// maxWait is how long the server waits for the parts of a request, in total, before the connection is one of those
	// that are closed first.
	maxWait = 100 * time.Millisecond
	// AnswerTimeout limits a request as a whole. The timeoutSeconds of a webhook are at most 30.
	AnswerTimeout = 40 * time.Second
	// idleTimeout is the idle timeout of API servers.
	idleTimeout = 90 * time.Second
	// MaxConnections is the number of connections whose request is not being served. An API server
	// processes up to 600 requests concurrently, and far fewer of one priority level.
	MaxConnections = 512
	// maxHandshakeBytes is what a peer can send before the body: the handshake with a client certificate, the
	// header, and the start of the body in the last TLS record.
	maxHandshakeBytes = 64 << 10
	// maxHeaderBytes is the size of a header, to which net/http adds 4 KiB.
	maxHeaderBytes = 8 << 10
)

// NewServer returns a server for a listener from Limit.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connectionOf(conn))
		},
		ConnState:         renewIdle,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: receiveTimeout,
		ReadTimeout:       receiveTimeout,
		WriteTimeout:      AnswerTimeout,
		IdleTimeout:       idleTimeout,
		// Peers cause these lines, and there can be any number of them.
		ErrorLog: log.New(io.Discard, "", 0),
	}
}
