// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/go-logr/logr"
)

// maxBody is the maximum size of a request body in bytes.
const maxBody = 64 << 10

const (
	// SignatureHeader is set in every response from the server, so that clients can distinguish the
	// server's responses from those of a proxy.
	SignatureHeader = "Answered-By"
	// Signature is the value of SignatureHeader.
	Signature = "index-server"
)

// NewHandler returns a handler for a store.
func NewHandler(store *Store, log logr.Logger) http.Handler {
	h := &handler{store: store, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /indices", h.serve(h.list))
	mux.HandleFunc("PUT /indices/{name}", h.serve(h.create))
	mux.HandleFunc("GET /indices/{name}", h.serve(h.get))
	mux.HandleFunc("DELETE /indices/{name}", h.serve(h.delete))
	mux.HandleFunc("POST /indices/{name}/documents", h.serve(h.add))
	mux.HandleFunc("GET /indices/{name}/_search", h.serve(h.search))
	return http.MaxBytesHandler(signed(mux), maxBody)
}

// signed adds the signature header to every response.
func signed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(SignatureHeader, Signature)
		next.ServeHTTP(w, r)
	})
}

type handler struct {
	store *Store
	log   logr.Logger
}

// answer is a response: the status and the optional body.
type answer struct {
	status int
	body   any
}

func (h *handler) list(*http.Request) (answer, error) {
	return answer{http.StatusOK, h.store.List()}, nil
}

func (h *handler) create(r *http.Request) (answer, error) {
	var owner Owner
	if err := decode(r, &owner); err != nil {
		return answer{}, err
	}
	made, isNew, err := h.store.Create(r.PathValue("name"), owner)
	if isNew {
		h.log.Info("Created an index", "index", made.Name, "namespace", owner.Namespace, "uid", owner.UID)
	}
	return answer{createdOrOK(isNew), made}, err
}

func (h *handler) get(r *http.Request) (answer, error) {
	found, err := h.store.Get(r.PathValue("name"))
	return answer{http.StatusOK, found}, err
}

func (h *handler) delete(r *http.Request) (answer, error) {
	name, uid := r.PathValue("name"), r.URL.Query().Get("uid")
	err := h.store.Delete(name, uid)
	if err == nil {
		h.log.Info("Deleted an index", "index", name, "uid", uid)
	}
	return answer{status: http.StatusNoContent}, err
}

func (h *handler) add(r *http.Request) (answer, error) {
	var document Document
	if err := decode(r, &document); err != nil {
		return answer{}, err
	}
	id, isNew, err := h.store.Add(r.PathValue("name"), document)
	return answer{createdOrOK(isNew), map[string]string{"id": id}}, err
}

func (h *handler) search(r *http.Request) (answer, error) {
	found, err := h.store.Search(r.PathValue("name"), r.URL.Query().Get("q"))
	return answer{http.StatusOK, found}, err
}

// serve returns a handler that calls f and writes its result as the response.
func (h *handler) serve(f func(*http.Request) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := f(r)
		if err != nil {
			result = answer{statusOf(err), Problem{Error: err.Error()}}
			if result.status == http.StatusInternalServerError {
				// The error might contain paths.
				h.log.Error(err, "Failed to process a request", "method", r.Method, "path", r.URL.Path)
				result.body = Problem{Error: "internal error; see the server's log"}
			}
		}
		if result.body == nil {
			w.WriteHeader(result.status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(result.status)
		if err := json.NewEncoder(w).Encode(result.body); err != nil {
			h.log.V(1).Info("Failed to write a response", "path", r.URL.Path, "error", err.Error())
		}
	}
}

// decode decodes the request body, which must be a single JSON object without unknown fields.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%w: failed to decode the body: %w", ErrInvalid, err)
	}
	if decoder.More() {
		return fmt.Errorf("%w: the body contains more than one object", ErrInvalid)
	}
	return nil
}

func statusOf(err error) int {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrConflict):
		return http.StatusConflict
	case errors.Is(err, ErrDeleted):
		return http.StatusGone
	default:
		return http.StatusInternalServerError
	}
}

func createdOrOK(isNew bool) int {
	if isNew {
		return http.StatusCreated
	}
	return http.StatusOK
}
