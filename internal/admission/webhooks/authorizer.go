// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TokenKey is the key of the token in the Secret with the certificate. Without it, authorization webhooks answer no
// request.
const TokenKey = "authorization-token"

// Authorizer is an authorization webhook. Unlike admission webhooks, it answers only API servers, which send the token
// in the Secret: its responses depend on the permissions of users, and it sends requests to the API server.
type Authorizer struct {
	Path string
	// Handle reports whether a request is allowed. If not, the webhook has no opinion; it never denies a request. The API
	// server adds the reason, which may be empty, to the message with which it rejects the request. After an error, it
	// sends the review again, up to four times within about 4 s.
	Handle func(context.Context, *AccessReview) (isAllowed bool, reason string, err error)
}

// AccessReview is a request to an API server that no earlier authorizer allows.
type AccessReview struct {
	Spec authorizationv1.SubjectAccessReviewSpec

	authorizer Authorizer
	serving    func()
}

// Serving is like Request.Serving.
func (a *AccessReview) Serving() {
	if a.serving != nil {
		a.serving()
	}
}

func (a Authorizer) decode(body io.Reader, limit int) (review, error) {
	decoded := &authorizationv1.SubjectAccessReview{}
	switch err := json.NewDecoder(prune(body, Fields{"spec": nil}, limit)).Decode(decoded); {
	case errors.Is(err, errTooLarge):
		// With an error, the API server would respond with status 500 instead of 403, for instance to a user with many
		// groups.
		a.Handle = func(context.Context, *AccessReview) (bool, string, error) { return false, "", nil }
		return &AccessReview{authorizer: a}, nil
	case err != nil:
		return nil, err
	}
	if decoded.Spec.User == "" {
		return nil, errors.New("the body is not a SubjectAccessReview of a user")
	}
	return &AccessReview{Spec: decoded.Spec, authorizer: a}, nil
}

func (a *AccessReview) respond(ctx context.Context, _ *http.Request, serving func()) (any, *refusal) {
	a.serving = serving
	isAllowed, reason, err := a.authorizer.Handle(ctx, a)
	if err != nil {
		// The API server retries only after some errors (DefaultShouldRetry in apiserver, pkg/util/webhook/webhook.go).
		return nil, &refusal{http.StatusInternalServerError, fmt.Errorf("failed to authorize: %w", err)}
	}
	return &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: isAllowed, Reason: reason},
	}, nil
}

// token is the bearer token of API servers.
type token struct {
	// hash is nil if there is no token. Hashes are compared in constant time.
	hash atomic.Pointer[[sha256.Size]byte]
}

func (t *token) load(secret *corev1.Secret) {
	value := strings.TrimSpace(string(secret.Data[TokenKey]))
	if value == "" {
		t.hash.Store(nil)
		return
	}
	t.hash.Store(new(sha256.Sum256([]byte(value))))
}

// isIn reports whether a request contains the token.
func (t *token) isIn(r *http.Request) bool {
	want := t.hash.Load()
	value, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if want == nil || !isBearer {
		return false
	}
	got := sha256.Sum256([]byte(value))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
