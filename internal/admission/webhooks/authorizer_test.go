// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/nslifecycle/nslifecycle/internal/limitedhttp"
)

// encodeAccess returns a review as kube-apiserver encodes it.
func encodeAccess(g Gomega, spec authorizationv1.SubjectAccessReviewSpec) string {
	scheme := runtime.NewScheme()
	g.Expect(authorizationv1.AddToScheme(scheme)).To(Succeed())
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(authorizationv1.SchemeGroupVersion)
	data, err := runtime.Encode(codec, &authorizationv1.SubjectAccessReview{Spec: spec})
	g.Expect(err).NotTo(HaveOccurred())
	return string(data)
}

func TestAuthorizer(t *testing.T) {
	g := NewWithT(t)
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: "alice", Groups: []string{"team"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "get", Resource: "configmaps", Name: "web"},
	}
	server := newServer("", nil, logr.Discard())
	server.RegisterAuthorizer(Authorizer{
		Path: "/authorize",
		Handle: func(_ context.Context, review *AccessReview) (bool, string, error) {
			review.Serving()
			switch review.Spec.User {
			case "alice":
				g.Expect(review.Spec).To(Equal(spec))
				return true, "", nil
			case "bob":
				return false, "wait", nil
			}
			return false, "", errors.New("no")
		},
	})
	address := serveAuthorizer(t, server)
	valid := encodeAccess(g, spec)
	tests := map[string]struct {
		body, header string
		secret       map[string][]byte
		want         int
		wantStatus   authorizationv1.SubjectAccessReviewStatus
	}{
		"allowed": {body: valid, want: http.StatusOK, wantStatus: authorizationv1.SubjectAccessReviewStatus{Allowed: true}},
		"no opinion": {body: encodeAccess(g, authorizationv1.SubjectAccessReviewSpec{User: "bob"}), want: http.StatusOK,
			wantStatus: authorizationv1.SubjectAccessReviewStatus{Reason: "wait"}},
		"an error, which is retried": {
			body: encodeAccess(g, authorizationv1.SubjectAccessReviewSpec{User: "eve"}), want: http.StatusInternalServerError,
		},
		"a line break after the token": {
			body: valid, secret: map[string][]byte{TokenKey: []byte("secret\n")}, want: http.StatusOK,
			wantStatus: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
		},
		"no token":               {body: valid, header: "-", want: http.StatusUnauthorized},
		"another token":          {body: valid, header: "Bearer secre", want: http.StatusUnauthorized},
		"another scheme":         {body: valid, header: "Basic secret", want: http.StatusUnauthorized},
		"an empty token":         {body: valid, header: "Bearer ", want: http.StatusUnauthorized},
		"no token in the Secret": {body: valid, header: "Bearer ", secret: map[string][]byte{}, want: http.StatusUnauthorized},
		"an empty token in the Secret": {
			body: valid, header: "Bearer ", secret: map[string][]byte{TokenKey: []byte(" \n")}, want: http.StatusUnauthorized,
		},
		"no user": {body: encodeAccess(g, authorizationv1.SubjectAccessReviewSpec{}), want: http.StatusBadRequest},
		"no JSON": {body: "spec: {user: alice}", want: http.StatusBadRequest},
		"no opinion about a review that is too large": {
			body: strings.Replace(valid, "team", strings.Repeat("t", maxHead), 1), want: http.StatusOK,
		},
		"a large review without the token": {
			body: strings.Replace(valid, "team", strings.Repeat("t", maxHead), 1), header: "-", want: http.StatusUnauthorized,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if test.secret == nil {
				test.secret = map[string][]byte{TokenKey: []byte("secret")}
			}
			server.token.load(&corev1.Secret{Data: test.secret})
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				"https://"+address+"/authorize?timeout=15s", strings.NewReader(test.body))
			g.Expect(err).NotTo(HaveOccurred())
			request.Header.Set("Content-Type", contentType)
			switch test.header {
			case "":
				request.Header.Set("Authorization", "Bearer secret")
			case "-":
			default:
				request.Header.Set("Authorization", test.header)
			}
			response, err := newClient().Do(request)
			g.Expect(err).NotTo(HaveOccurred())
			defer response.Body.Close()
			g.Expect(response.StatusCode).To(Equal(test.want))
			if test.want == http.StatusOK {
				var got authorizationv1.SubjectAccessReview
				g.Expect(json.NewDecoder(response.Body).Decode(&got)).To(Succeed())
				g.Expect(got.Status).To(Equal(test.wantStatus))
				g.Expect(got.Spec).To(BeZero())
			}
		})
	}
}

// serveAuthorizer serves until the test ends, and returns the address.
func serveAuthorizer(t *testing.T, server *Server) string {
	t.Helper()
	g := NewWithT(t)
	serving := newIssuer(g).issue(g, "localhost")
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	listener := limitedhttp.Limit(tcp, &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
	})
	https := limitedhttp.NewServer(server.mux)
	t.Cleanup(func() { _ = https.Close() })
	go func() { _ = https.Serve(listener) }()
	return tcp.Addr().String()
}
