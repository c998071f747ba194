// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"regexp"
	"time"
)

// Owner is the Namespace of an index.
type Owner struct {
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// Index describes an index.
type Index struct {
	Name    string    `json:"name"`
	Owner   Owner     `json:"owner"`
	Created time.Time `json:"created"`
	// Documents is the number of documents.
	Documents int `json:"documents"`
}

// Document is an entry in an index. A new document replaces the document with the same ID.
type Document struct {
	// ID identifies the document. If it is empty, the server generates an ID.
	ID     string            `json:"id,omitempty"`
	Time   time.Time         `json:"time"`
	Text   string            `json:"text"`
	Fields map[string]string `json:"fields,omitempty"`
}

// Found is the result of a search: the latest documents, and the number of all.
type Found struct {
	Total     int        `json:"total"`
	Documents []Document `json:"documents"`
}

// Problem is the body of an error response.
type Problem struct {
	Error string `json:"error"`
}

// Names and IDs are also names of files, so they contain neither dots nor slashes.
// 127 characters are sufficient for the name of a Namespace, a dash and a part of its UID.
var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,125}[a-z0-9])?$`)
	uidPattern  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,126}[A-Za-z0-9])?$`)
)
