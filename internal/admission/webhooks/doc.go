// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks serves the admission webhooks of the manager (config/webhook) and keeps their certificate.
// They serve on every replica, whichever is the leader. The leader issues and rotates the certificate, and
// adds its CA to the webhook configurations.
//
// Every Pod can send requests to the server, unless a CA for client certificates is configured. In addition to the
// limits of limitedhttp, the server bounds the bytes of reviews that it buffers and the JSON values in an object. A
// webhook bounds the requests that it works on, and reads only from caches.
package webhooks
