// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"errors"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// The policy expiry contains these patterns, so it accepts exactly the values that the operator parses. Numbers with at
// most five digits do not overflow a time.Duration.
const (
	TimePattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}` +
		`T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	TTLPattern = `^([0-9]{1,5}d)?([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$`
)

var timePattern, ttlPattern = regexp.MustCompile(TimePattern), regexp.MustCompile(TTLPattern)

// maxShownValue is the maximum number of characters of an invalid value in an error.
const maxShownValue = 64

// Expiry is the time when a Namespace expires.
type Expiry struct {
	At time.Time
	// Key and Value are the key and the value of the annotation that sets the time.
	Key, Value string
}

// String returns the annotation as key=value.
func (e Expiry) String() string { return e.Key + "=" + e.Value }

// IsSet reports whether a Namespace has an annotation that sets an expiry.
func IsSet(namespace *corev1.Namespace) bool {
	_, hasTime := namespace.Annotations[v1alpha1.AnnotationExpiresAt]
	_, hasTTL := namespace.Annotations[v1alpha1.AnnotationTTL]
	return hasTime || hasTTL
}

// Parse returns the expiry of a Namespace for which IsSet returns true. If the annotations are
// invalid, the error is a message for users.
func Parse(namespace *corev1.Namespace) (Expiry, error) {
	at, hasTime := namespace.Annotations[v1alpha1.AnnotationExpiresAt]
	ttl, hasTTL := namespace.Annotations[v1alpha1.AnnotationTTL]
	switch {
	case hasTime && hasTTL:
		return Expiry{}, errors.New(msgBothAnnotations)
	case hasTime:
		parsed, err := parseTime(at)
		return Expiry{At: parsed, Key: v1alpha1.AnnotationExpiresAt, Value: at}, err
	}
	duration, err := parseTTL(ttl)
	if err == nil && namespace.CreationTimestamp.IsZero() {
		err = errors.New(msgNoCreationTime)
	}
	return Expiry{
		At: namespace.CreationTimestamp.Add(duration), Key: v1alpha1.AnnotationTTL, Value: ttl,
	}, err
}

func parseTime(text string) (time.Time, error) {
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil || !timePattern.MatchString(text) {
		return time.Time{}, errors.New(msgInvalidTime(text))
	}
	return parsed, nil
}

func parseTTL(text string) (time.Duration, error) {
	var duration time.Duration
	parts := ttlPattern.FindStringSubmatch(text)
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if parts != nil && parts[i+1] != "" {
			number, _ := strconv.Atoi(parts[i+1][:len(parts[i+1])-1]) // The pattern accepts only digits before the unit.
			duration += time.Duration(number) * unit
		}
	}
	if duration <= 0 {
		return 0, errors.New(msgInvalidTTL(text))
	}
	return duration, nil
}

// quote returns text as a string literal, truncated to maxShownValue characters.
func quote(text string) string {
	if runes := []rune(text); len(runes) > maxShownValue {
		text = string(runes[:maxShownValue]) + "..."
	}
	return strconv.Quote(text)
}
