// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limitedhttp serves HTTP for peers that are not authenticated, such as every Pod in the cluster. It bounds
// what they make the manager do before a handler knows the request: the connections, the bytes of the handshake and
// of the header, and the time.
//
// Each bound is for all peers together. Above it, the server does not reject the newest connection, which would let a
// peer keep out the API server, but closes the oldest one of the peer with the most. Connections that wait for their
// peers are closed first. The servers of controller-runtime have no bound for connections, and accept headers of 1 MiB
// for 32 s.
package limitedhttp
