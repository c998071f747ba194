// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Event is a request in an audit log.
type Event struct {
	// Log is the path of the audit log.
	Log string `json:"-"`

	AuditID   string                    `json:"auditID"`
	Stage     string                    `json:"stage"`
	Verb      string                    `json:"verb"`
	URI       string                    `json:"requestURI"`
	UserAgent string                    `json:"userAgent"`
	User      authenticationv1.UserInfo `json:"user"`
	// ImpersonatedUser is nil if User sent the request without impersonation.
	ImpersonatedUser *authenticationv1.UserInfo `json:"impersonatedUser"`
	ObjectRef        struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// RequestObject and ResponseObject are set at level RequestResponse.
	RequestObject  json.RawMessage  `json:"requestObject"`
	ResponseObject Object           `json:"responseObject"`
	Received       metav1.MicroTime `json:"requestReceivedTimestamp"`
	Completed      metav1.MicroTime `json:"stageTimestamp"`

	// revision is the revision of etcd that stored the write, 0 if it is unknown.
	revision uint64
	// isNoOp reports whether the response contains the revision of another write.
	isNoOp bool
}

// Object is an object in a response or in a watch event.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   json.RawMessage `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
	// Details is set in a Status.
	Details json.RawMessage `json:"details,omitempty"`
	// Initializers is set in a NamespaceInitializerConfiguration.
	Initializers []v1alpha1.NamespaceInitializer `json:"initializers,omitempty"`
}

// Succeeded reports whether the API server executed the request.
func (e *Event) Succeeded() bool {
	return e.ResponseStatus.Code >= 200 && e.ResponseStatus.Code < 300
}

// IsDryRun reports whether the request is a dry run.
func (e *Event) IsDryRun() bool {
	if strings.Contains(e.URI, "dryRun=") {
		return true
	}
	// A deletion can have its options in the body.
	var options metav1.DeleteOptions
	return isDeletion(e) && json.Unmarshal(e.RequestObject, &options) == nil && len(options.DryRun) > 0
}

// Identity returns the user whose permissions the API server checked.
func (e *Event) Identity() authenticationv1.UserInfo {
	if e.ImpersonatedUser != nil {
		return *e.ImpersonatedUser
	}
	return e.User
}

// String describes the request.
func (e *Event) String() string {
	user := e.User.Username
	if e.ImpersonatedUser != nil {
		user = fmt.Sprintf("%s as %s", user, e.ImpersonatedUser.Username)
	}
	return fmt.Sprintf("%s: %s %s, revision %d, audit ID %s in %s", user, e.Verb, e.URI, e.revision, e.AuditID,
		filepath.Base(filepath.Dir(e.Log))+"/"+filepath.Base(e.Log))
}

func isDeletion(e *Event) bool { return e.Verb == "delete" || e.Verb == "deletecollection" }

// isWrite reports whether the request changed a stored object. Access reviews are created but not
// stored.
func isWrite(e *Event) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) &&
		e.Succeeded() && !e.IsDryRun() && e.ObjectRef.APIGroup != "authorization.k8s.io"
}

func isForNamespaces(e *Event) bool {
	return e.ObjectRef.APIGroup == "" && e.ObjectRef.Resource == namespacesResource
}

const namespacesResource = "namespaces"

// revisionOf returns the revision of an object, 0 if it has none.
func revisionOf(object *Object) uint64 { return parseRevision(object.ResourceVersion) }

func parseRevision(resourceVersion string) uint64 {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// deletedUID returns the UID in the Status that a DELETE returned.
func deletedUID(status *Object) types.UID {
	var details metav1.StatusDetails
	if status.Kind != "Status" || json.Unmarshal(status.Details, &details) != nil {
		return ""
	}
	return details.UID
}

// namespaceFinalizers returns spec.finalizers of a Namespace.
func (o *Object) namespaceFinalizers() []corev1.FinalizerName {
	var spec corev1.NamespaceSpec
	if o.Kind != "Namespace" || json.Unmarshal(o.Spec, &spec) != nil {
		return nil
	}
	return spec.Finalizers
}

// conditions returns the conditions of a Namespace.
func (o *Object) conditions() []corev1.NamespaceCondition {
	var status corev1.NamespaceStatus
	if o.Kind != "Namespace" || json.Unmarshal(o.Status, &status) != nil {
		return nil
	}
	return status.Conditions
}

// lineStart is the start of each line in an audit log. In other places, the quotation marks are escaped, or the
// API version differs.
const lineStart = `{"kind":"Event","apiVersion":"audit.k8s.io/v1"`

// ReadLog returns the requests that an API server logged after the first offset bytes, in the order of
// their responses. It omits a request whose line starts before the offset.
func ReadLog(path string, offset int64) ([]Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("failed to open audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, fmt.Errorf("failed to read audit log: %w", err)
	}
	var events []Event
	reader := bufio.NewReader(file)
	for isFirst := true; ; isFirst = false {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // The text after the last newline is incomplete.
		} else if err != nil {
			return nil, fmt.Errorf("failed to read audit log: %w", err)
		}
		// After a crash, an API server appends to an incomplete line.
		if start := bytes.LastIndex(line, []byte(lineStart)); start >= 0 {
			line = line[start:]
		} else if isFirst && offset > 0 {
			continue
		}
		event := Event{Log: path}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("failed to decode audit event %s: %w", bytes.TrimSpace(line), err)
		}
		events = append(events, event)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return compareEvents(&a, &b) })
	return events, nil
}

// compareEvents orders requests by their responses.
func compareEvents(a, b *Event) int {
	return cmp.Or(a.Completed.Compare(b.Completed.Time), cmp.Compare(a.AuditID, b.AuditID))
}
