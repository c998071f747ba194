# Restricts who can make a namespace expire: the operator must not delete a namespace on behalf of a
# user who is not allowed to delete it. Without this policy, the operator deletes no expired
# namespaces.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: expiry
  labels:
    nslifecycle.dev/policy: expiry
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      # Writes to subresources can also change annotations.
      resources: ["namespaces", "namespaces/status", "namespaces/finalize"]
      scope: "*"
  # For all other writes to a namespace, only this comparison is evaluated.
  matchConditions:
  - name: something-to-check
    expression: >-
      oldObject != null
      ? object.metadata.?annotations[?'nslifecycle.dev/expires-at'] !=
          oldObject.metadata.?annotations[?'nslifecycle.dev/expires-at'] ||
        object.metadata.?annotations[?'nslifecycle.dev/ttl'] != oldObject.metadata.?annotations[?'nslifecycle.dev/ttl'] ||
        object.?status.?conditions.orValue([]).exists(c, c.type == 'nslifecycle.dev/Expired' && c.status == 'True' &&
          !(c in oldObject.?status.?conditions.orValue([])))
      : object.metadata.?annotations[?'nslifecycle.dev/expires-at'].hasValue() ||
        object.metadata.?annotations[?'nslifecycle.dev/ttl'].hasValue()
  variables:
  # The values of the annotations are lists with at most one element, to distinguish an absent value
  # from an empty one.
  - name: name
    expression: "object.metadata.?name.orValue('')"
  - name: expiresAt
    expression: "[?object.metadata.?annotations[?'nslifecycle.dev/expires-at']]"
  - name: ttl
    expression: "[?object.metadata.?annotations[?'nslifecycle.dev/ttl']]"
  # The rule for the condition Expired and its variables are those of the policy confine, which describes them.
  {{include "expiredVariables"}}
  validations:
  # The creator of a namespace can choose its expiry, because the namespace does not contain other
  # users' objects yet. Removing the expiry is always safe. Removing only one of two annotations can
  # set an expiry time, so it is checked. The check is the same as for a DELETE of the namespace, so
  # a Role in the namespace is sufficient.
  - expression: >-
      oldObject == null || (variables.expiresAt == [] && variables.ttl == []) ||
      variables.expiresAt == [?oldObject.metadata.?annotations[?'nslifecycle.dev/expires-at']] &&
      variables.ttl == [?oldObject.metadata.?annotations[?'nslifecycle.dev/ttl']] ||
      authorizer.group('').resource('namespaces').namespace(variables.name).name(variables.name)
      .check('delete').allowed()
    reason: Forbidden
    messageExpression: >-
      'user "' + request.userInfo.username + '" is not allowed to change when namespace "' + variables.name
      + '" expires (annotations nslifecycle.dev/expires-at and nslifecycle.dev/ttl): this requires the permission to delete it;'
      + ' users who can update the namespace but not delete it can only remove both annotations, so that it does not expire'
  - expression: "variables.expiresAt == [] || variables.ttl == []"
    reason: Invalid
    message: >-
      a namespace can have the annotation nslifecycle.dev/expires-at or nslifecycle.dev/ttl, but not both;
      remove one of them in the same request
  # The operator accepts the same values (internal/expiry/parse.go). The pattern also accepts dates such as February 31.
  - expression: >-
      variables.expiresAt.all(v, v.size() <= 40 &&
        v.matches('{{.timePattern}}') &&
        !format.date().validate(v.substring(0, 10)).hasValue())
    reason: Invalid
    message: "annotation nslifecycle.dev/expires-at must be a time in RFC 3339 format, such as 2026-12-24T18:00:00Z"
  - expression: >-
      variables.ttl.all(v, v.size() <= 24 && v.matches('[1-9]') &&
        v.matches('{{.ttlPattern}}'))
    reason: Invalid
    message: >-
      annotation nslifecycle.dev/ttl must be a positive duration in days, hours, minutes and seconds, such as 7d or 1h30m;
      it is counted from the creation of the namespace
  - expression: >-
      {{include "expiredRule"}}
    reason: Forbidden
    messageExpression: >-
      'condition nslifecycle.dev/Expired of namespace "' + variables.name + '" can be set only with field manager nslifecycle'
      + ' through /status, with a time that is not in the future, and once per second'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: expiry
  labels:
    nslifecycle.dev/policy: expiry
spec:
  policyName: expiry
  validationActions: ["Deny"]
