// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the API server says, as it says it. The same words stand in its answers and in the
// conditions that a namespace controller makes of them, where nothing but the words is left.
var (
	webhookFailing = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	webhookDenied  = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
	policyDenied   = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' (?:with binding '[^']*' )?denied request`)
	conversion     = regexp.MustCompile(`conversion webhook for ([^,\s]+), Kind=(\w+)`)
	rightMissing   = regexp.MustCompile(`User "([^"]+)" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"`)
	throttled      = regexp.MustCompile(`(?i)too many requests|client rate limiter|please try again later`)
	timedOut       = regexp.MustCompile(`(?i)the server was unable to return a response in the time allotted|` +
		`etcdserver: request timed out|request did not complete within|context deadline exceeded|Timeout: `)
	unreadable = regexp.MustCompile(`(?i)StorageReadError|failed to decrypt|unable to transform key|` +
		`no kind "[^"]*" is registered|proto: |illegal wireType|json: cannot unmarshal|corrupt object|` +
		`couldn't get version/kind|error decoding|invalid character`)
	missing = regexp.MustCompile(`(?i)([a-z][\w.-]*)\s+"([^"]+)"\s+(?:was\s+)?not found`)
)

// isMissingRight tells whether the API server has refused for want of a right of who asked,
// and not since an admission webhook or policy refuses.
func isMissingRight(err error) bool {
	return apierrors.IsForbidden(err) && rightMissing.MatchString(err.Error())
}

// isAdmission tells whether an error comes from admission.
func isAdmission(text string) bool {
	return webhookFailing.MatchString(text) || webhookDenied.MatchString(text) || policyDenied.MatchString(text)
}

// isInvalid tells whether an object does not pass validation, other than by a policy.
func isInvalid(err error) bool {
	return apierrors.IsInvalid(err) && !isAdmission(err.Error())
}

// isStoreReadError tells whether the API server itself says that it cannot read what is
// stored.
func isStoreReadError(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError || unreadable.MatchString(err.Error())
}

// namesIn returns what a pattern names in any of the texts, sorted, each once.
func namesIn(pattern *regexp.Regexp, texts ...string) []string {
	var names []string
	for _, text := range texts {
		for _, match := range pattern.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isAnswer tells whether an error is the API server's word, and not that of the line to it.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// oneLine makes a text of the API server fit for one line of evidence.
func oneLine(text string) string {
	const most = 400
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " ..."
	}
	return text
}
