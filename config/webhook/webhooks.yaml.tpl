# The webhooks delay writes, and then ask the client to send them again (internal/hold/doc.go). The second one
# does the same as the first, which rejects all writes except in audit mode: the API server calls it only if the first
# call failed, for example because a replica of the manager crashed. In audit mode, it records the writes.
#
# The other two webhooks do the same for the waitingSubjects of configurations, which the first two do
# not select. The operator adds their rules and match conditions. Without rules, a webhook selects no
# request.
#
# failurePolicy Ignore: without the webhooks, the gate policy rejects the writes.
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: hold
  labels:
    app.kubernetes.io/name: nslifecycle
    app.kubernetes.io/managed-by: kustomize
webhooks:
- name: hold.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  # Longer than the manager's --hold-duration.
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold
  # exec and other subresources are not held: clients that create a namespace and fill it do not need
  # them.
  rules: &rules
  - apiGroups: ["*"]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE, DELETE]
    resources: ["*"]
    scope: Namespaced
  namespaceSelector: &initializing
    matchExpressions:
    - key: nslifecycle.dev/initializing
      operator: Exists
  # Evaluated in the API server, so the writes that the gate admits do not reach the webhooks. A controller
  # sends its Events one after another, so a held Event would delay those about other namespaces.
  matchConditions: &waiting
  - name: not-an-event-of-a-controller
    expression: "request.resource.resource != 'events' || !request.userInfo.username.startsWith('system:')"
  - name: not-an-initializer
    expression: >-
      !({{include "mayProvision" "namespace" "request.namespace"}})
- name: hold-fallback.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold-fallback
  rules: *rules
  namespaceSelector: *initializing
  matchConditions: *waiting
- name: hold-waiting-subjects.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold
  namespaceSelector: *initializing
- name: hold-fallback-waiting-subjects.nslifecycle.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 15
  clientConfig:
    service:
      name: webhook
      namespace: system
      path: /hold-fallback
  namespaceSelector: *initializing
