// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package limitedhttp

import (
	"io"
	"log"
	"net/http"
	"time"
)

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
	// idleTimeout is the one of API servers.
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
		Handler:           handler,
		ConnContext:       withConnection,
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
