// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nslifecycle/nslifecycle/internal/limitedhttp"
)

// Webhook is an admission webhook. If the server refuses a review, the API server continues without it, unless the
// webhook has failurePolicy Fail, as the one that injects initializers does.
type Webhook struct {
	// Path is a path or, with a slash at its end, a prefix of paths.
	Path string
	// Fields are the parts of the object, the oldObject and the options of a request that the server decodes.
	Fields Fields
	// Handle returns the response to a request. If it returns an error, the server refuses the review.
	Handle HandlerFunc
}

// HandlerFunc returns the response to a request.
type HandlerFunc func(context.Context, *Request) (*admissionv1.AdmissionResponse, error)

// handler receives reviews for a webhook, and limits what their peers can make it do before it knows them.
type handler struct {
	path string
	// authenticate reports whether a request is from an API server. It is nil if a webhook also answers other peers.
	authenticate func(*http.Request) bool
	// limit is the size of the parts of a review that decode returns.
	limit  int
	decode func(body io.Reader, limit int) (review, error)

	buffers *limitedhttp.Quota
	log     logr.Logger
	// refusals limits the number of log lines about refused reviews.
	refusals *rate.Sometimes
}

// review is a decoded review.
type review interface {
	// respond returns the response to a request whose body has been received. It calls serving when the handler of the
	// webhook begins to work on it.
	respond(ctx context.Context, r *http.Request, serving func()) (any, *refusal)
}

// refusal is an error with the status of the response.
type refusal struct {
	code int
	err  error
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if panicked := recover(); panicked != nil {
			h.log.Error(fmt.Errorf("%v", panicked), messagePanic, "path", h.path, "stack", string(debug.Stack()))
			http.Error(w, messagePanic, http.StatusInternalServerError)
		}
	}()
	response, refused := h.serve(w, r)
	if refused != nil {
		h.refusals.Do(func() {
			h.log.Info(messageRefused, "path", h.path, "peer", r.RemoteAddr, "reason", refused.err.Error())
		})
		w.Header().Set("Connection", "close")
		http.Error(w, refused.err.Error(), refused.code)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_ = json.NewEncoder(w).Encode(response) // Fails only if the connection has failed.
}

const contentType = "application/json"

func (h *handler) serve(w http.ResponseWriter, r *http.Request) (any, *refusal) {
	if h.authenticate != nil && !h.authenticate(r) {
		return nil, &refusal{http.StatusUnauthorized, errors.New(messageUnauthenticated)}
	}
	if refused := refuse(r); refused != nil {
		return nil, refused
	}
	conn := limitedhttp.ConnectionFrom(r.Context())
	conn.AllowBody(2 * maxBody) // net/http limits the body to its Content-Length.
	buffer := h.buffers.Add(conn.Peer(), int(min(r.ContentLength, int64(h.limit))), func() { _ = conn.Close() })
	defer buffer.Release()
	review, err := h.receive(w, r)
	switch {
	case errors.Is(err, errTooLarge):
		// With this status, the message of the API server contains the error.
		return nil, &refusal{http.StatusRequestEntityTooLarge, err}
	case err != nil:
		return nil, &refusal{http.StatusBadRequest, err}
	}
	ctx, cancel := withTimeout(log.IntoContext(r.Context(), h.log), r)
	defer cancel()
	return review.respond(ctx, r, func() {
		buffer.Release()
		conn.Serving()
	})
}

func refuse(r *http.Request) *refusal {
	switch {
	case r.Method != http.MethodPost:
		return &refusal{http.StatusMethodNotAllowed, errors.New("the method is not POST")}
	case r.Header.Get("Content-Type") != contentType || r.Header.Get("Content-Encoding") != "":
		return &refusal{http.StatusUnsupportedMediaType, errors.New("the content is not application/json")}
	case r.ContentLength < 0:
		return &refusal{http.StatusLengthRequired, errors.New("the header has no Content-Length")}
	case r.ContentLength > maxBody:
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("the review is larger than %d bytes", maxBody)}
	}
	return nil
}

// receive decodes the parts at the beginning of the body and drops the rest, so that net/http notices when the API
// server cancels the request.
func (h *handler) receive(w http.ResponseWriter, r *http.Request) (review, error) {
	review, err := h.decode(r.Body, h.limit)
	if err != nil && !errors.Is(err, errTooLarge) {
		return nil, fmt.Errorf("failed to decode the review: %w", err)
	}
	// An API server that cannot send all of a review does not receive the response.
	if _, copyErr := io.Copy(io.Discard, r.Body); err != nil || copyErr != nil {
		return nil, fmt.Errorf("failed to receive the review: %w", cmp.Or(err, copyErr))
	}
	// The timeout for receiving does not limit the response.
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("failed to set the deadline of the request: %w", err)
	}
	return review, nil
}

// responseTime, but at most half of the timeout, is reserved for the response to reach the API server. After its
// timeout, the API server would ignore the webhook.
const responseTime = time.Second

// withTimeout limits a context to the timeout of the API server.
func withTimeout(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc) {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		timeout = limitedhttp.AnswerTimeout
	}
	timeout = min(timeout, limitedhttp.AnswerTimeout)
	return context.WithTimeout(ctx, timeout-min(responseTime, timeout/2))
}
