// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/examples/search-index/indexserver"
)

const (
	// maxAnswer is the maximum size of a response in bytes.
	maxAnswer = 16 << 20
	// maxRetryAfter limits the delay in the server's Retry-After header.
	maxRetryAfter = 10 * time.Minute
)

// Client is a client for one index server. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	timeout time.Duration
	http    *http.Client
	now     func() time.Time
}

// New returns a client for the server at a URL. The timeout applies to each request.
func New(server string, timeout time.Duration) (*Client, error) {
	base, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("failed to parse the URL of the index server: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("invalid URL of the index server %q: use a URL such as http://index-server:8080", server)
	}
	if timeout <= 0 {
		return nil, fmt.Errorf("invalid timeout %s: it must be greater than 0", timeout)
	}
	return &Client{
		base: base, timeout: timeout, now: time.Now,
		http: &http.Client{
			// An index server never redirects.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Create creates the index of a Namespace, or returns the existing one.
func (c *Client) Create(ctx context.Context, name string, owner indexserver.Owner) (indexserver.Index, error) {
	var made indexserver.Index
	err := c.do(ctx, http.MethodPut, c.url(nil, "indices", name), owner, &made)
	return made, err
}

// Get returns an index.
func (c *Client) Get(ctx context.Context, name string) (indexserver.Index, error) {
	var found indexserver.Index
	err := c.do(ctx, http.MethodGet, c.url(nil, "indices", name), nil, &found)
	return found, err
}

// List returns all indices.
func (c *Client) List(ctx context.Context) ([]indexserver.Index, error) {
	var found []indexserver.Index
	err := c.do(ctx, http.MethodGet, c.url(nil, "indices"), nil, &found)
	return found, err
}

// Delete deletes the index of a Namespace. It succeeds if the index does not exist.
func (c *Client) Delete(ctx context.Context, name, uid string) error {
	return c.do(ctx, http.MethodDelete, c.url(url.Values{"uid": {uid}}, "indices", name), nil, nil)
}

// Add adds a document to an index, or replaces the document with the same ID.
func (c *Client) Add(ctx context.Context, name string, document indexserver.Document) error {
	var added struct {
		ID string `json:"id"`
	}
	return c.do(ctx, http.MethodPost, c.url(nil, "indices", name, "documents"), document, &added)
}

// Search returns the documents of an index that contain every word of the query.
func (c *Client) Search(ctx context.Context, name, query string) (indexserver.Found, error) {
	var found indexserver.Found
	err := c.do(ctx, http.MethodGet, c.url(url.Values{"q": {query}}, "indices", name, "_search"), nil, &found)
	return found, err
}

func (c *Client) url(query url.Values, elements ...string) string {
	for i, element := range elements {
		elements[i] = url.PathEscape(element)
	}
	target := c.base.JoinPath(elements...)
	target.RawQuery = query.Encode()
	return target.String()
}

// do sends one request and reads its response within the timeout.
func (c *Client) do(ctx context.Context, method, target string, body, into any) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("failed to encode a request: %w", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(limited, method, target, reader)
	if err != nil {
		return fmt.Errorf("failed to create a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return c.classify(ctx, limited, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return c.classify(ctx, limited, err)
	}
	return c.read(response, data, into)
}

// classify returns the error for a request without a response.
func (c *Client) classify(ctx, limited context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("failed to call the index server: %w", context.Cause(ctx))
	case limited.Err() != nil:
		return &SlowError{URL: c.base.String(), Timeout: c.timeout}
	}
	// Omit the request's method and URL, since DownError contains the URL of the server.
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	return &DownError{URL: c.base.String(), Err: err}
}

// read decodes a successful response, and returns an error for any other response.
func (c *Client) read(response *http.Response, data []byte, into any) error {
	status := response.StatusCode
	isByServer := response.Header.Get(indexserver.SignatureHeader) == indexserver.Signature
	switch {
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return &BusyError{Status: status, Message: messageOf(data), RetryAfter: c.retryAfter(response.Header)}
	case status >= http.StatusBadRequest:
		return &RefusedError{Status: status, Message: messageOf(data), IsByServer: isByServer}
	case status < http.StatusOK || status >= http.StatusMultipleChoices || !isByServer:
		return &BusyError{Status: status, Message: "not a response from an index server"}
	case into == nil && status == http.StatusNoContent:
		return nil
	case into == nil:
		// Some gateways return 200 for unknown paths.
		return &BusyError{Status: status, Message: "not a response from an index server"}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &BusyError{Status: status, Message: "failed to decode the response: " + err.Error()}
	}
	return nil
}

// retryAfter parses the Retry-After header, which contains seconds or a date.
func (c *Client) retryAfter(header http.Header) time.Duration {
	var wait time.Duration
	text := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		wait = time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(text); err == nil {
		wait = date.Sub(c.now())
	}
	return min(max(wait, 0), maxRetryAfter)
}

// messageOf returns the error message in a response body, or the beginning of the body if it comes
// from a proxy.
func messageOf(data []byte) string {
	const most = 200
	var problem indexserver.Problem
	if err := json.Unmarshal(data, &problem); err == nil && problem.Error != "" {
		return problem.Error
	}
	text := strings.ToValidUTF8(strings.Join(strings.Fields(string(data)), " "), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " ..."
	}
	return text
}
