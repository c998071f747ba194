// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package denial

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

const (
	// maxCause is the maximum length of the message for one field in bytes.
	maxCause = 240
	// maxListed is the maximum length of a list of causes, or of missing permissions, in bytes.
	maxListed = 480

	quoted         = `"(?:[^"\\]|\\.)*"`
	escalationText = `attempting to grant RBAC permissions`
)

var (
	// schemaMismatch matches errors of server-side apply, which have no reason.
	schemaMismatch = regexp.MustCompile(`^failed to (?:create typed patch object|convert new object) `)
	quotaUnknown   = regexp.MustCompile(`^[^:]* is forbidden: status unknown for quota: `)
	// requester matches the user who has sent a request, and its groups.
	requester = regexp.MustCompile(
		`[Uu]ser (` + quoted + `)(?: \(groups=\[(?:` + quoted + ` ?)*\]\))?( cannot | is attempting )`)
	// serviceAccount matches the user name of a ServiceAccount, whose namespace and name are DNS names.
	serviceAccount = regexp.MustCompile(`"?system:serviceaccount:[a-z0-9-]+:([a-z0-9.-]*[a-z0-9])"?`)
	// missingRules matches the rules that a user may not grant, one in each line.
	missingRules = regexp.MustCompile(`(?s)^(.*` + escalationText + ` not currently held:)\n(\{.*\})(.*)$`)
	// addresses matches the hosts and ports in errors of connections, such as those to webhooks.
	addresses = regexp.MustCompile(`\b(?:Get|Head|Post|Put|Patch|Delete) ` + quoted + `: |` +
		`\b(?:dial|proxyconnect|read|write) (?:tcp|udp)[46]?(?: [^\s"]+)?: `)
	resolution  = regexp.MustCompile(`\blookup [^\s"]+(?: on [^\s"]+)?: `)
	certificate = regexp.MustCompile(`\bcertificate is valid for [^"]*, not [^\s"]+`)
	// transient matches denials that can end without a change of the object, the permissions or a policy.
	transient = regexp.MustCompile(`not yet ready|exceeded quota: |error looking up service account |` +
		`RBAC: (?:cluster)?role\.rbac\.authorization\.k8s\.io ` + quoted + ` not found|Operation cannot be fulfilled on |` +
		`failed calling webhook |denied request: failed to configure |deadline exceeded|connection refused`)
)

// IsTransient reports whether a message of the API server describes a denial that can end without a change of the
// object, of permissions or of policies: for example, because admission is not ready, or what the request needs does
// not exist yet.
func IsTransient(text string) bool { return transient.MatchString(text) }

// IsEscalation reports whether the API server denied a request because the user may not grant permissions.
func IsEscalation(err error) bool { return strings.Contains(err.Error(), escalationText) }

// IsQuotaUnknown reports whether the API server denied a request because a ResourceQuota is not counted yet.
func IsQuotaUnknown(err error) bool {
	return apierrors.IsForbidden(err) && quotaUnknown.MatchString(err.Error())
}

// IsInvalid reports whether the API server cannot accept an object because of its content.
func IsInvalid(err error) bool {
	var status *apierrors.StatusError
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		errors.As(err, &status) && schemaMismatch.MatchString(status.Error())
}

// Message returns the text of an error as one line of printable characters with at most the given number of bytes. It
// contains the object and the reason of the API server, but neither the name and the groups of the user who has sent
// the request nor the addresses of the API server and of webhooks.
func Message(err error, most int) string {
	text := err.Error()
	var status *apierrors.StatusError
	var failed *url.Error
	switch {
	case errors.As(err, &status):
		text = strings.Replace(text, status.Error(), statusMessage(status.ErrStatus), 1)
	case errors.As(err, &failed):
		text = strings.Replace(text, failed.Error(), "the API server does not respond: "+failed.Err.Error(), 1)
	}
	text = certificate.ReplaceAllString(text, "certificate is not valid for the host")
	text = resolution.ReplaceAllString(addresses.ReplaceAllString(text, ""), "lookup: ")
	text = requester.ReplaceAllStringFunc(text, func(found string) string {
		parts := requester.FindStringSubmatch(found)
		if serviceAccount.MatchString(parts[1]) {
			return parts[1] + parts[2]
		}
		return "the user" + parts[2]
	})
	return printable.Shorten(serviceAccount.ReplaceAllString(text, `ServiceAccount "$1"`), most)
}

// statusMessage returns the message of a response without most of what a list in it repeats.
func statusMessage(status metav1.Status) string {
	if parts := missingRules.FindStringSubmatch(status.Message); parts != nil {
		return parts[1] + " " + list(strings.Split(parts[2], "\n"), "rule") + parts[3]
	}
	if start, causes := causesIn(status); len(causes) > 0 {
		return start + list(causes, "cause")
	}
	return status.Message
}

// causesIn returns the causes in an error about an invalid object, or about a conflict with other field managers. start
// is the part of the message before the causes.
func causesIn(status metav1.Status) (start string, causes []string) {
	details := status.Details
	if details == nil {
		return "", nil
	}
	for _, cause := range details.Causes {
		if cause.Field == "" {
			return "", nil
		}
		text := cause.Field + ": " + cause.Message
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			text = cause.Message + ": " + cause.Field
		}
		causes = append(causes, printable.Shorten(text, maxCause))
	}
	// The API server returns the causes of some types in any order, and another message would be another problem.
	slices.Sort(causes)
	causes = slices.Compact(causes)
	if status.Reason == metav1.StatusReasonInvalid {
		return fmt.Sprintf("%s %q is invalid: ", details.Kind, details.Name), causes
	}
	return "", causes
}

// list returns the first items, and the number of further items.
func list(items []string, noun string) string {
	length := 0
	for i, item := range items {
		if length += len(item); i > 0 && length > maxListed {
			return strings.Join(items[:i], "; ") + "; and " + printable.Count(len(items)-i, "other "+noun)
		}
	}
	return strings.Join(items, "; ")
}
