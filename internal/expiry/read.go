// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// config/expiry/expiry.yaml has both patterns too: what admission takes and what the
// operator acts on is the same. Five digits each are less than what a time.Duration holds.
var (
	timePattern = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}` +
		`T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)
	ttlPattern = regexp.MustCompile(`^(?:([0-9]{1,5})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,5})m)?(?:([0-9]{1,5})s)?$`)
)

// shownValue is how much of a wrong value is shown, in characters.
const shownValue = 64

// Expiry is when a Namespace expires, and why.
type Expiry struct {
	At time.Time
	// Key and Value are the annotation that says so.
	Key, Value string
}

// Has tells whether somebody wants a Namespace to expire.
func Has(namespace *corev1.Namespace) bool {
	_, hasTime := namespace.Annotations[v1alpha1.AnnotationExpiresAt]
	_, hasTTL := namespace.Annotations[v1alpha1.AnnotationTTL]
	return hasTime || hasTTL
}

// Read returns when a Namespace expires. The error is a sentence that says why that is not
// clear. It must be one that Has expiry.
func Read(namespace *corev1.Namespace) (Expiry, error) {
	at, hasTime := namespace.Annotations[v1alpha1.AnnotationExpiresAt]
	ttl, hasTTL := namespace.Annotations[v1alpha1.AnnotationTTL]
	switch {
	case hasTime && hasTTL:
		return Expiry{}, fmt.Errorf("annotations %s and %s are both there, and only one of them can count; remove the other",
			v1alpha1.AnnotationExpiresAt, v1alpha1.AnnotationTTL)
	case hasTime:
		parsed, err := parseTime(at)
		return Expiry{At: parsed, Key: v1alpha1.AnnotationExpiresAt, Value: at}, err
	}
	lifetime, err := parseTTL(ttl)
	if err == nil && namespace.CreationTimestamp.IsZero() {
		err = fmt.Errorf("annotation %s counts from the creation of the namespace, and that is not known",
			v1alpha1.AnnotationTTL)
	}
	return Expiry{
		At: namespace.CreationTimestamp.Add(lifetime), Key: v1alpha1.AnnotationTTL, Value: ttl,
	}, err
}

func parseTime(text string) (time.Time, error) {
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil || !timePattern.MatchString(text) {
		return time.Time{}, fmt.Errorf("annotation %s is %s and not a time in the format of RFC 3339, "+
			"such as 2026-12-24T18:00:00Z", v1alpha1.AnnotationExpiresAt, quote(text))
	}
	return parsed, nil
}

func parseTTL(text string) (time.Duration, error) {
	var lifetime time.Duration
	parts := ttlPattern.FindStringSubmatch(text)
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if parts != nil && parts[i+1] != "" {
			number, _ := strconv.Atoi(parts[i+1]) // The pattern lets nothing but digits through.
			lifetime += time.Duration(number) * unit
		}
	}
	if lifetime <= 0 {
		return 0, fmt.Errorf("annotation %s is %s and not a time above zero in days, hours, minutes and seconds, "+
			"such as 7d or 1h30m", v1alpha1.AnnotationTTL, quote(text))
	}
	return lifetime, nil
}

func quote(text string) string { return strconv.Quote(clip(text, shownValue)) }

func clip(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width]) + "..."
	}
	return text
}
