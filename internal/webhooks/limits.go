// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

// Limits of reviews. Peers are not authenticated, unless a CA for client certificates is configured. At these limits
// and those for connections, test/webhookserver measures less than half of the memory limit in config/manager.
const (
	// maxBody is the size of a review. A request to an API server has up to 3 MiB, and an object in etcd 1.5 MiB.
	// JSON encodes each byte of both with up to 6 bytes.
	maxBody = 32 << 20
	// maxHead is the size of the fields of a review that are decoded before the objects.
	maxHead = 64 << 10
	// maxObject is the size of the fields of an object that a webhook decodes. A valid template contains at most 1 MiB,
	// and the annotations of a Namespace 256 KiB, which JSON encodes with up to six times as many bytes.
	maxObject = 2 << 20
	// maxBuffered is the part of all reviews that is buffered.
	maxBuffered = 16 << 20

	// maxValues is the number of JSON values in an object, maxElements the number of elements of a list, and
	// maxDepth their nesting. Decoding can need hundreds of bytes for a value of two characters. The values are
	// those that a valid template can contain, and more than CustomResourceDefinitions allow in any other list.
	maxValues   = 96 << 10
	maxElements = 1024
	maxDepth    = 100
)
