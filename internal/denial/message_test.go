// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package denial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	tenant = `"system:serviceaccount:nslifecycle-system:tenant"`
	groups = `(groups=["system:serviceaccounts" "system:serviceaccounts:nslifecycle-system" "system:authenticated"])`
	// escalation is how the API server denies a RoleBinding, before the rules.
	escalation = `rolebindings.rbac.authorization.k8s.io "admins" is forbidden: user ` + tenant + ` ` + groups +
		" is attempting to grant RBAC permissions not currently held:\n"
)

// response returns an error as clients return it for a response of the API server.
func response(reason metav1.StatusReason, message string, causes ...metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{Name: "team", Kind: "ResourceQuota", Causes: causes},
	}}
}

func denied(message string) error { return response(metav1.StatusReasonForbidden, message) }

// The messages are those of kube-apiserver 1.37.
func TestMessage(t *testing.T) {
	cause := func(kind metav1.CauseType, field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: kind, Field: field, Message: message}
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"RBAC escalation": {
			denied(escalation + `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`),
			`rolebindings.rbac.authorization.k8s.io "admins" is forbidden: ServiceAccount "tenant" is attempting to grant RBAC ` +
				`permissions not currently held: {APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`,
		},
		"RBAC escalation, many rules": {
			denied(escalation + strings.TrimSpace(strings.Repeat(`{APIGroups:["apps"], Resources:["deployments"], Verbs:["*"]}`+"\n", 50))),
			`rolebindings.rbac.authorization.k8s.io "admins" is forbidden: ServiceAccount "tenant" is attempting to grant RBAC ` +
				`permissions not currently held: ` +
				strings.Repeat(`{APIGroups:["apps"], Resources:["deployments"], Verbs:["*"]}; `, 8) + `and 42 other rules`,
		},
		"RBAC escalation by a user, and a missing role": {
			denied(`roles.rbac.authorization.k8s.io "r" is forbidden: user "a \"b\"" (groups=[]) is attempting to grant RBAC permissions ` +
				"not currently held:\n{APIGroups:[\"\"], Resources:[\"*\"], Verbs:[\"*\"]}; resolution errors: [clusterroles \"x\" not found]"),
			`roles.rbac.authorization.k8s.io "r" is forbidden: the user is attempting to grant RBAC permissions ` +
				`not currently held: {APIGroups:[""], Resources:["*"], Verbs:["*"]}; resolution errors: [clusterroles "x" not found]`,
		},
		"no permission": {
			denied(`networkpolicies.networking.k8s.io "deny" is forbidden: User ` + tenant +
				` cannot patch resource "networkpolicies" in API group "networking.k8s.io" in the namespace "shop"`),
			`networkpolicies.networking.k8s.io "deny" is forbidden: ServiceAccount "tenant"` +
				` cannot patch resource "networkpolicies" in API group "networking.k8s.io" in the namespace "shop"`,
		},
		"no permission, without a name": {
			denied(`configmaps is forbidden: User "dana@example.com" cannot create resource "configmaps" in API group "" ` +
				`in the namespace "shop": RBAC: clusterrole.rbac.authorization.k8s.io "x" not found`),
			`configmaps is forbidden: the user cannot create resource "configmaps" in API group "" ` +
				`in the namespace "shop": RBAC: clusterrole.rbac.authorization.k8s.io "x" not found`,
		},
		"no permission to impersonate": {
			denied(`serviceaccounts "tenant" is forbidden: User "system:serviceaccount:nslifecycle-system:nslifecycle-controller-manager" ` +
				`cannot impersonate resource "serviceaccounts" in API group "" in the namespace "nslifecycle-system"`),
			`serviceaccounts "tenant" is forbidden: ServiceAccount "nslifecycle-controller-manager" ` +
				`cannot impersonate resource "serviceaccounts" in API group "" in the namespace "nslifecycle-system"`,
		},
		"quota": {
			denied(`configmaps "c" is forbidden: exceeded quota: team, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1`),
			`configmaps "c" is forbidden: exceeded quota: team, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1`,
		},
		"LimitRange": {
			denied(`pods "p" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi]`),
			`pods "p" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi]`,
		},
		"Pod Security": {
			denied(`pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged (container "c" must not set securityContext.privileged=true)`),
			`pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged (container "c" must not set securityContext.privileged=true)`,
		},
		"policy": {
			response(metav1.StatusReasonInvalid, `configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`,
				metav1.StatusCause{Message: `ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`}),
			`configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`,
		},
		"webhook that names the user": {
			denied(`admission webhook "w.example.com" denied the request: system:serviceaccount:nslifecycle-system:tenant may not do this.`),
			`admission webhook "w.example.com" denied the request: ServiceAccount "tenant" may not do this.`,
		},
		"webhook that fails": {
			response(metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: `+
				`Post "https://w.shop.svc:443/?timeout=10s": context deadline exceeded`),
			`Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: context deadline exceeded`,
		},
		"invalid, many causes": {
			response(metav1.StatusReasonInvalid, `ResourceQuota "team" is invalid: [a, a, b]`,
				cause("FieldValueInvalid", "spec.hard[b]", `Invalid value: "`+strings.Repeat("b", 4000)+`": must be positive`),
				cause("FieldValueInvalid", "spec.hard[a]", `Invalid value: "a": must be a standard resource`),
				cause("FieldValueInvalid", "spec.hard[a]", `Invalid value: "a": must be a standard resource`)),
			`ResourceQuota "team" is invalid: spec.hard[a]: Invalid value: "a": must be a standard resource; spec.hard[b]: Invalid value: ... must be positive`,
		},
		"conflict": {
			response(metav1.StatusReasonConflict, "Operation cannot be fulfilled on resourcequotas \"team\": the object has been modified"),
			`Operation cannot be fulfilled on resourcequotas "team": the object has been modified`,
		},
		"field managers": {
			fmt.Errorf("ResourceQuota \"team\": %w", response(metav1.StatusReasonConflict,
				"Apply failed with 2 conflicts: conflicts with \"kubectl-edit\" using v1:\n- .spec.hard.pods\n- .spec.hard.cpu",
				cause(metav1.CauseTypeFieldManagerConflict, ".spec.hard.pods", `conflict with "kubectl-edit" using v1`),
				cause(metav1.CauseTypeFieldManagerConflict, ".spec.hard.cpu", `conflict with "kubectl-edit" using v1`))),
			`ResourceQuota "team": conflict with "kubectl-edit" using v1: .spec.hard.cpu; conflict with "kubectl-edit" using v1: .spec.hard.pods`,
		},
		"timeout of the API server": {
			response(metav1.StatusReasonTimeout, "Timeout: request did not complete within requested timeout - context deadline exceeded"),
			"Timeout: request did not complete within requested timeout - context deadline exceeded",
		},
		"no response": {
			fmt.Errorf("failed to list pods: %w", &url.Error{
				Op: http.MethodPatch, URL: "https://10.0.0.1/api?force=true", Err: context.DeadlineExceeded,
			}),
			"failed to list pods: the API server does not respond: context deadline exceeded",
		},
		"no connection": {
			fmt.Errorf("failed to list pods: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1/", Err: &net.OpError{
				Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}, Err: syscall.ECONNREFUSED,
			}}),
			"failed to list pods: the API server does not respond: connection refused",
		},
		"broken connection": {
			&net.OpError{
				Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv6loopback, Port: 4321},
				Addr: &net.TCPAddr{IP: net.IPv6loopback, Port: 443}, Err: syscall.ECONNRESET,
			},
			"connection reset by peer",
		},
		"webhook without a name in DNS": {
			response(metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: `+
				`Post "https://w.shop.svc:443/?timeout=10s": dial tcp: lookup w.shop.svc on 10.96.0.10:53: no such host`),
			`Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: lookup: no such host`,
		},
		"webhook with another certificate": {
			response(metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: `+
				`Post "https://10.0.0.9:8443/": tls: failed to verify certificate: x509: certificate is valid for a.example.com, 10.0.0.8, not 10.0.0.9`),
			`Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: ` +
				`tls: failed to verify certificate: x509: certificate is not valid for the host`,
		},
		"an address in the object": {
			denied(`networkpolicies "n" is forbidden: spec.egress[0].to[0].ipBlock.cidr: Invalid value: "10.0.0.0": Get a prefix`),
			`networkpolicies "n" is forbidden: spec.egress[0].to[0].ipBlock.cidr: Invalid value: "10.0.0.0": Get a prefix`,
		},
		"unknown kind":  {errors.New(`the API server does not serve kind "Widget"`), `the API server does not serve kind "Widget"`},
		"lines, colors": {errors.New("a\n\tb\x1b[31m\u202e"), `a b\x1b[31m\u202e`},
	} {
		t.Run(name, func(t *testing.T) {
			got := Message(test.err, 832)
			NewWithT(t).Expect(got).To(Equal(test.want))
			if strings.Contains(got, "system:serviceaccount") || strings.Contains(got, "groups=") {
				t.Error("it contains the user")
			}
		})
	}
}

func TestMessageIsBounded(t *testing.T) {
	for name, err := range map[string]error{
		"one word": errors.New(strings.Repeat("\u202e", 1<<20)),
		"a rule":   denied(escalation + `{APIGroups:["` + strings.Repeat("x", 1<<20) + `"]}`),
		"a cause": response(metav1.StatusReasonInvalid, "x", metav1.StatusCause{
			Field: strings.Repeat("x", 1<<20), Message: strings.Repeat("ä", 1<<20),
		}),
		"a user": denied(`User "` + strings.Repeat(`\"`, 1<<20) + `" cannot get`),
	} {
		got := Message(err, 400)
		if len(got) > 400 || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes: %q", name, len(got), got)
		}
	}
}

func TestIsInvalid(t *testing.T) {
	g := NewWithT(t)
	g.Expect(IsInvalid(response(metav1.StatusReasonInvalid, "x"))).To(BeTrue())
	g.Expect(IsInvalid(response(metav1.StatusReasonBadRequest, "x"))).To(BeTrue())
	const text = "failed to create typed patch object (shop/team; /v1, Kind=ResourceQuota): .spec.hardd: field not declared in schema"
	g.Expect(IsInvalid(fmt.Errorf("ResourceQuota: %w", response("", text)))).To(BeTrue())
	g.Expect(IsInvalid(response("", "failed to convert new object (shop/team; /v1, Kind=ResourceQuota) to proper version: x"))).To(BeTrue())
	g.Expect(IsInvalid(errors.New(text))).To(BeFalse())
	g.Expect(IsInvalid(response(metav1.StatusReasonInternalError, "Internal error occurred: x"))).To(BeFalse())
}

func TestIsTransient(t *testing.T) {
	for text, want := range map[string]bool{
		`pods "p" is forbidden: not yet ready to handle request`:                                                            true,
		`pods "p" is forbidden: error looking up service account shop/default: serviceaccount "default" not found`:          true,
		`pods "p" is forbidden: exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1`:                     true,
		`Internal error occurred: failed calling webhook "w.example.com": EOF`:                                              true,
		`admission webhook "w.example.com" denied the request: no answer: context deadline exceeded`:                        true,
		`admission webhook "w.example.com" denied the request: connection refused`:                                          true,
		`Operation cannot be fulfilled on configmaps "c": the object has been modified`:                                     true,
		`the user cannot create resource "pods" in API group "": RBAC: clusterrole.rbac.authorization.k8s.io "x" not found`: true,
		"configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: " +
			"failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction": true,
		`pods "p" is forbidden: the user cannot create resource "pods" in API group ""`:                       false,
		`configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: timeout`: false,
		`Pod "p" is invalid: spec.containers[0].livenessProbe.timeoutSeconds: Invalid value: 0`:               false,
		`conflict with "kubectl-edit" using v1: .spec.hard.cpu`:                                               false,
	} {
		if got := IsTransient(text); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestIsQuotaUnknown(t *testing.T) {
	g := NewWithT(t)
	const text = `configmaps "c" is forbidden: status unknown for quota: team, resources: count/configmaps`
	g.Expect(IsQuotaUnknown(denied(text))).To(BeTrue())
	g.Expect(IsQuotaUnknown(errors.New(text))).To(BeFalse())
	g.Expect(IsQuotaUnknown(denied(`configmaps "c" is forbidden: exceeded quota: team`))).To(BeFalse())
	g.Expect(IsQuotaUnknown(denied(`admission webhook "a" denied the request: x is forbidden: status unknown for quota: x`))).To(BeFalse())
}
