// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// maxChunks is the number of chunks that a connection buffers in each direction during a latency.
const maxChunks = 4096

// TCPProxy forwards connections to a server.
type TCPProxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	lock        sync.Mutex
	connections map[*connection]struct{}
	latency     time.Duration
	isDropping  bool
	isRefusing  bool
	// identify returns the identity of the client that sent the bytes, or "" if the bytes do not contain an identity.
	identify func(bytes []byte) string
	// resumed is closed when the proxy forwards bytes again; nil if it is not paused.
	resumed chan struct{}
	// only is the identity of the client to which faults are limited, "" if there is no limit.
	only string
}

// connection is a pair of connections to a client and to the server.
type connection struct {
	client, server net.Conn
	// isBroken reports whether bytes were dropped.
	isBroken bool
	// identity is the identity of the client, "" if it is unknown.
	identity string
}

func (c *connection) close() {
	_, _ = c.client.Close(), c.server.Close()
}

// StartTCPProxy starts a proxy for a server, which runs until Stop is called.
func StartTCPProxy(target string) (*TCPProxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("failed to start a TCP proxy: %w", err)
	}
	p := &TCPProxy{listener: listener, target: target, connections: map[*connection]struct{}{}}
	p.done.Go(p.accept)
	return p, nil
}

// Address returns the host and the port to which clients connect.
func (p *TCPProxy) Address() string { return p.listener.Addr().String() }

// Stop closes all connections.
func (p *TCPProxy) Stop() error {
	err := p.listener.Close()
	p.LimitTo("")
	p.Pause(false)
	p.Cut()
	p.done.Wait()
	return err
}

// Identify sets a function that returns the identity of the client that sent the bytes, or "" if the bytes do not
// contain an identity. Connections keep the last identity.
func (p *TCPProxy) Identify(identify func(bytes []byte) string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.identify = identify
}

// LimitTo limits SetLatency, Pause, Cut and Drop to the connections of one client. With "", there is no limit.
func (p *TCPProxy) LimitTo(identity string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.only = identity
}

// isAffected reports whether faults apply to a connection.
func (p *TCPProxy) isAffected(c *connection) bool { return p.only == "" || p.only == c.identity }

// SetLatency delays all bytes in both directions.
func (p *TCPProxy) SetLatency(latency time.Duration) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.latency = latency
}

// Pause delays all bytes in both directions until it is called with false.
func (p *TCPProxy) Pause(isPaused bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	switch {
	case isPaused && p.resumed == nil:
		p.resumed = make(chan struct{})
	case !isPaused && p.resumed != nil:
		close(p.resumed)
		p.resumed = nil
	}
}

// waitUntilResumed waits while a connection is paused.
func (p *TCPProxy) waitUntilResumed(c *connection) {
	p.lock.Lock()
	resumed := p.resumed
	if !p.isAffected(c) {
		resumed = nil
	}
	p.lock.Unlock()
	if resumed != nil {
		<-resumed
	}
}

// Cut closes all connections.
func (p *TCPProxy) Cut() {
	p.lock.Lock()
	defer p.lock.Unlock()
	for c := range p.connections {
		if p.isAffected(c) {
			c.close()
		}
	}
}

// Refuse closes new connections until it is called with false. It does not affect existing connections.
func (p *TCPProxy) Refuse(isRefusing bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.isRefusing = isRefusing
}

// Drop discards all bytes in both directions until it is called with false. Meanwhile, neither side learns
// that the other side has closed a connection. Afterwards, the connections that lost bytes are closed.
func (p *TCPProxy) Drop(isDropping bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.isDropping = isDropping
	for _, c := range slices.Collect(maps.Keys(p.connections)) {
		if !isDropping && c.isBroken {
			c.close()
			delete(p.connections, c)
		}
	}
}

func (p *TCPProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(client) })
	}
}

func (p *TCPProxy) serve(client net.Conn) {
	p.lock.Lock()
	isRefusing := p.isRefusing
	p.lock.Unlock()
	server, err := net.Dial("tcp", p.target)
	if err != nil || isRefusing {
		_ = client.Close()
		if server != nil {
			_ = server.Close()
		}
		return
	}
	c := &connection{client: client, server: server}
	p.lock.Lock()
	p.connections[c] = struct{}{}
	p.lock.Unlock()
	var copies sync.WaitGroup
	copies.Go(func() { p.forward(c, client, server) })
	copies.Go(func() { p.forward(c, server, client) })
	copies.Wait()
}

// chunk contains bytes that are written at a later time.
type chunk struct {
	bytes []byte
	at    time.Time
}

// forward copies bytes until one side closes the connection.
func (p *TCPProxy) forward(c *connection, from, to net.Conn) {
	chunks := make(chan chunk, maxChunks)
	var writer sync.WaitGroup
	writer.Go(func() {
		for next := range chunks {
			time.Sleep(time.Until(next.at))
			p.waitUntilResumed(c)
			if _, err := to.Write(next.bytes); err != nil {
				_ = from.Close() // Ends the reads. The remaining writes fail, too.
			}
		}
	})
	for {
		buffer := make([]byte, 32<<10)
		count, err := from.Read(buffer)
		latency, isDropped := p.treat(c, from, buffer[:count])
		if count > 0 && !isDropped {
			chunks <- chunk{bytes: buffer[:count], at: time.Now().Add(latency)}
		}
		if err == nil {
			continue
		}
		close(chunks)
		writer.Wait()
		p.lock.Lock()
		defer p.lock.Unlock()
		if !isDropped {
			c.close()
			delete(p.connections, c)
		}
		return
	}
}

// treat returns the latency of bytes, and whether they are dropped.
func (p *TCPProxy) treat(c *connection, from net.Conn, bytes []byte) (latency time.Duration, isDropped bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.identify != nil && from == c.client {
		if identity := p.identify(bytes); identity != "" {
			c.identity = identity
		}
	}
	if !p.isAffected(c) {
		return 0, c.isBroken
	}
	c.isBroken = c.isBroken || p.isDropping
	return p.latency, c.isBroken
}
