// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"regexp"
	"time"
)

// Owner is the Namespace that an index is for.
type Owner struct {
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// Index is what the service says of an index.
type Index struct {
	Name    string    `json:"name"`
	Owner   Owner     `json:"owner"`
	Created time.Time `json:"created"`
	// Documents is how many there are.
	Documents int `json:"documents"`
}

// Document is what an index holds. One with the ID of another one replaces it.
type Document struct {
	// ID is chosen by the server where it is empty.
	ID     string            `json:"id,omitempty"`
	Time   time.Time         `json:"time"`
	Text   string            `json:"text"`
	Fields map[string]string `json:"fields,omitempty"`
}

// Hit is a document that was found. The more of it is what was looked for, the higher the
// score.
type Hit struct {
	Score    int      `json:"score"`
	Document Document `json:"document"`
}

// Found is the answer to a search: the best hits, and how many there are in all.
type Found struct {
	Total int   `json:"total"`
	Hits  []Hit `json:"hits"`
}

// Problem is the body of every answer that is not a success.
type Problem struct {
	Error string `json:"error"`
}

// A name is also that of a directory, and an ID that of a file, so neither has a dot or a
// slash. The name of a namespace, a dash and a part of its UID fit into 127.
var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,125}[a-z0-9])?$`)
	uidPattern  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,126}[A-Za-z0-9])?$`)
)
